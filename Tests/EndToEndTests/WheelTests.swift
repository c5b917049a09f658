import Foundation
import TestSupport
import Testing

extension Clients {
    @Suite("The Python wheel of the sandbox", .onlySQLite("no relay takes part"))
    struct WheelTests {
        /// They send by curl, because Python's own client has no HTTP/2.
        private static let tests = """
            import pushchat_sandbox, pytest, subprocess
            def send(sandbox):
                return subprocess.run(["curl", "-s", "--http2", "--cacert", sandbox.authority, "--cert", sandbox.certificate,
                    "-H", f"apns-topic: {sandbox.topic}", "-d", '{"aps":{"alert":"Hello"}}',
                    f"https://localhost:{sandbox.ports['http2']}/3/device/3037"], capture_output=True, text=True).stdout
            def test_accepted(push_sandbox):
                assert send(push_sandbox) == ""
                (push,) = push_sandbox.notifications(wait="10s")
                assert push["answer"] == "accepted"
            def test_fault(push_sandbox):
                push_sandbox.fault(protocol="http2", action="status", reason="Unregistered")
                assert "Unregistered" in send(push_sandbox)
            def test_clean(push_sandbox):
                assert push_sandbox.notifications() == [] and push_sandbox.call("GET", "/faults") == {"faults": []}
                with pytest.raises(pushchat_sandbox.SandboxError, match="action: must be one of"):
                    push_sandbox.fault(protocol="http2", action="boom")
            def test_start():
                with pytest.raises(pushchat_sandbox.SandboxError, match="--boom"): pushchat_sandbox.Sandbox("--boom")

            """

        @Test("In a fresh virtual environment, pip installs the wheel, and pytest finds its fixture")
        func wheel() async throws {
            let folder = try Folder()
            let small = folder.file("pushchat").path
            try await tool("strip", ["-o", small, Running.executable.path])
            let checkouts = Page.root.appending(path: ".build/checkouts").path
            let wheel = try await tool(
                "env",
                [
                    "LEVEL=1", Page.root.appending(path: "packaging/wheel").path, small, checkouts,
                    folder.file("out").path,
                ]
            ).trimmingCharacters(in: .whitespacesAndNewlines)
            let environment = folder.file("environment").path
            try await tool("python3", ["-m", "venv", environment])
            try await tool("\(environment)/bin/pip", ["install", "--quiet", "--no-index", wheel])
            try Self.tests.write(to: folder.file("test_push.py"), atomically: true, encoding: .utf8)
            // pytest comes from another environment, so that the test needs no network.
            let packages = try await tool(
                try Python.program("python"),
                ["-c", "import pytest, os; print(os.path.dirname(os.path.dirname(pytest.__file__)))"]
            ).trimmingCharacters(in: .whitespacesAndNewlines)
            let tests = try await ClientProgram.run(
                [
                    "env", "PYTHONPATH=\(packages)", "\(environment)/bin/python", "-m", "pytest", "-q", "-p",
                    "no:cacheprovider",
                    folder.file("test_push.py").path,
                ], within: 120)
            #expect(tests.status == 0 && tests.text.contains("4 passed"), "\(tests.text) \(tests.errors)")
            let version = try await ClientProgram.run(["\(environment)/bin/pushchat-sandbox", "--help"])
            #expect(version.text.contains("--free-ports"), "\(version.errors)")
        }
    }
}

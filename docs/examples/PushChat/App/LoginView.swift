import SwiftUI

/// The first screen: a nickname and the room's secret code.
struct LoginView: View {
    let model: ChatModel
    @AppStorage("name") private var name = ""
    @State private var code = ""
    @State private var isJoining = false

    var body: some View {
        Form {
            Section {
                TextField("Nickname", text: $name)
                    .textContentType(.nickname)
                TextField("Secret code", text: $code)
                    .textInputAutocapitalization(.never)
                    .autocorrectionDisabled()
            } footer: {
                Text("Everyone who enters the same code is in the same room.")
            }
            Button("Start") {
                isJoining = true
                Task {
                    await model.join(code, as: name)
                    isJoining = false
                }
            }
            .disabled(name.isEmpty || code.isEmpty || isJoining)
        }
        .navigationTitle("PushChat")
    }
}

import PushChatKit
import SwiftUI
import UserNotifications

@main
struct PushChatApp: App {
    @UIApplicationDelegateAdaptor private var delegate: AppDelegate
    @Environment(\.scenePhase) private var phase

    var body: some Scene {
        WindowGroup {
            if let model = delegate.model {
                RootView(model: model)
            } else {
                Text("Settings.xcconfig has no valid relay address, or the app group is missing.")
            }
        }
        .onChange(of: phase, initial: true) {
            delegate.model?.isActive = phase == .active
            if phase == .active { UNUserNotificationCenter.current().setBadgeCount(0) }
        }
    }
}

/// Asks for permission to notify, and passes the push token on.
final class AppDelegate: NSObject, UIApplicationDelegate {
    let model = AppGroup(.main).map { group in
        ChatModel(
            group,
            app: PushChatAPI.App(
                id: Bundle.main.bundleIdentifier,
                version: Bundle.main.object(forInfoDictionaryKey: "CFBundleShortVersionString") as? String,
                system: "\(UIDevice.current.systemName) \(UIDevice.current.systemVersion)",
                model: UIDevice.current.model))
    }

    func application(
        _ application: UIApplication,
        didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]? = nil
    ) -> Bool {
        Task {
            await model?.resume()
            let options: UNAuthorizationOptions = [.alert, .badge, .sound]
            guard (try? await UNUserNotificationCenter.current().requestAuthorization(options: options)) == true else {
                return
            }
            application.registerForRemoteNotifications()
        }
        return true
    }

    func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken token: Data) {
        Task { await model?.setDeviceToken(token) }
    }

    func application(_ application: UIApplication, didFailToRegisterForRemoteNotificationsWithError error: any Error) {
        model?.problem = "No pushes: \(error.localizedDescription)"
    }
}

/// Shows the login or the chat, and problems.
struct RootView: View {
    @Bindable var model: ChatModel

    var body: some View {
        NavigationStack {
            if model.isInRoom { ChatView(model: model) } else { LoginView(model: model) }
        }
        .alert("PushChat", isPresented: hasProblem) {
            Button("OK") {}
        } message: {
            Text(model.problem ?? "")
        }
    }

    private var hasProblem: Binding<Bool> {
        Binding {
            model.problem != nil
        } set: { isShown in
            if !isShown { model.problem = nil }
        }
    }
}

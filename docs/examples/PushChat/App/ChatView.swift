import PushChatKit
import SwiftUI

/// The second screen: the room's messages.
struct ChatView: View {
    let model: ChatModel
    @State private var isComposing = false

    var body: some View {
        ScrollView {
            LazyVStack(spacing: 8) {
                ForEach(model.messages) { message in
                    Bubble(
                        name: message.isOwn ? nil : message.name, title: message.title, text: message.text,
                        isOwn: message.isOwn)
                }
                ForEach(model.waiting) { message in
                    Bubble(text: message.text, isOwn: true).opacity(0.5)
                }
            }
            .padding()
        }
        .defaultScrollAnchor(.bottom)
        .navigationTitle(model.isConnected ? model.members.map { "\($0) members" } ?? "Chat" : "Connecting…")
        .navigationBarTitleDisplayMode(.inline)
        .toolbar {
            ToolbarItem(placement: .topBarLeading) {
                Button("Leave") { Task { await model.leave() } }
            }
            ToolbarItem(placement: .topBarTrailing) {
                Button("Compose", systemImage: "square.and.pencil") { isComposing = true }
            }
        }
        .sheet(isPresented: $isComposing) { ComposeView(model: model) }
    }
}

/// A message in a speech bubble.
private struct Bubble: View {
    var name: String?
    var title: String?
    let text: String
    let isOwn: Bool

    var body: some View {
        VStack(alignment: .leading, spacing: 2) {
            if let name { Text(name).font(.caption).foregroundStyle(.secondary) }
            if let title { Text(title).bold() }
            Text(text)
        }
        .padding(10)
        .background(isOwn ? Color.accentColor.opacity(0.25) : Color.gray.opacity(0.2), in: .rect(cornerRadius: 14))
        .frame(maxWidth: .infinity, alignment: isOwn ? .trailing : .leading)
    }
}

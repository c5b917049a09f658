import SwiftUI

/// The third screen: a new message, with a counter of the bytes that are left.
struct ComposeView: View {
    let model: ChatModel
    @State private var draft = Draft()
    @Environment(\.dismiss) private var dismiss

    var body: some View {
        NavigationStack {
            TextEditor(text: $draft.text)
                .padding()
                .safeAreaInset(edge: .bottom) {
                    Text("\(draft.remaining)")
                        .monospacedDigit()
                        .foregroundStyle(draft.remaining < 0 ? .red : .secondary)
                        .padding()
                }
                .toolbar {
                    ToolbarItem(placement: .cancellationAction) {
                        Button("Cancel") { dismiss() }
                    }
                    ToolbarItem(placement: .confirmationAction) {
                        Button("Send") {
                            Task { await model.post(draft.text) }
                            dismiss()
                        }
                        .disabled(!draft.canBeSent)
                    }
                }
        }
    }
}

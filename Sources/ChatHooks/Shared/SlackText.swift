import ChatDomain

/// Slack's texts beside their marks: entities, tags and names of emoji.
enum SlackText {
    /// Takes a tag `address|label` apart.
    static func parts(ofTag tag: String) -> (target: String, label: String?) {
        let parts = tag.unicodeScalars.split(separator: "|", maxSplits: 1, omittingEmptySubsequences: false)
        return (String(parts[0]), parts.count > 1 ? String(parts[1]) : nil)
    }

    /// Returns a text without marks as Slack shows it.
    static func shown(_ text: String) -> String { withEmoji(decoded(text)) }

    /// The names that programs use most. Others stay as they are.
    private static let emoji: [String: String] = {
        let words = """
            x ❌ white_check_mark ✅ heavy_check_mark ✔️ warning ⚠️ rotating_light 🚨 fire 🔥 boom 💥 no_entry ⛔ \
            octagonal_sign 🛑 red_circle 🔴 large_green_circle 🟢 large_yellow_circle 🟡 large_orange_circle 🟠 \
            large_blue_circle 🔵 exclamation ❗ question ❓ information_source ℹ️ bell 🔔 rocket 🚀 tada 🎉 sparkles ✨ \
            star ⭐ zap ⚡ bug 🐛 package 📦 wrench 🔧 hammer 🔨 gear ⚙️ construction 🚧 lock 🔒 key 🔑 link 🔗 memo 📝 \
            bulb 💡 mag 🔍 eyes 👀 hourglass ⌛ stopwatch ⏱️ calendar 📅 email 📧 computer 💻 chart_with_upwards_trend 📈 \
            chart_with_downwards_trend 📉 arrow_up ⬆️ arrow_down ⬇️ arrow_right ➡️ +1 👍 thumbsup 👍 -1 👎 thumbsdown 👎 \
            wave 👋 raised_hands 🙌 clap 👏 point_right 👉 heart ❤️ green_heart 💚 robot_face 🤖 skull 💀
            """.split(separator: " ").map { String($0) }
        return Dictionary(
            uniqueKeysWithValues: stride(from: 0, to: words.count, by: 2).map { (words[$0], words[$0 + 1]) })
    }()

    /// Replaces names between colons with their characters.
    static func withEmoji(_ text: String) -> String {
        guard text.utf8.contains(UInt8(ascii: ":")) else { return text }
        var parts = text.unicodeScalars.split(separator: ":", omittingEmptySubsequences: false).map { String($0) }
        var result = parts.removeFirst()
        // Whether a colon before the next part may begin a name.
        var isOpen = true
        for (index, part) in parts.enumerated() {
            if isOpen, index < parts.count - 1, let character = emoji[part] {
                result += character
                isOpen = false
            } else {
                result += (isOpen ? ":" : "") + part
                isOpen = true
            }
        }
        return result
    }

    /// Replaces Slack's three entities.
    static func decoded(_ text: String) -> String {
        guard text.utf8.contains(UInt8(ascii: "&")) else { return text }
        return text.replacing("&lt;", with: "<").replacing("&gt;", with: ">").replacing("&amp;", with: "&")
    }
}

import ChatDomain

/// A message in the shape of Slack's incoming webhooks.
struct SlackMessage {
    /// The maximum number of blocks, attachments, fields or elements that are shown.
    private static let partLimit = 50

    /// Reads the markup of a text.
    private let read: (String) -> MarkupText
    private var title: String?
    private var text = MarkupText()
    private var links: Set<String> = []

    /// - Parameter read: Reads the markup of a text.
    init(_ body: JSONObject, read: @escaping (String) -> MarkupText) {
        self.read = read
        var blocks = body.objects("blocks")
        if let first = blocks.first, first.text("type") == "header" {
            title = first.text("text", "text")
            blocks.removeFirst()
        }
        text = self.blocks(blocks)
        // As in Slack, the text beside blocks is only for places that show none.
        if text.isEmpty, let written = body.text("text") {
            text = body["mrkdwn"] == .bool(false) ? Self.plain(written) : read(written)
        }
        let attachments = body.objects("attachments").prefix(Self.partLimit)
        for attachment in attachments {
            add(attachment, isWhole: attachments.count == 1 && self.text.isEmpty && title == nil)
        }
    }

    /// Returns the message.
    func draft() throws(HookRefusal) -> HookDraft {
        guard !text.isEmpty || title != nil else {
            throw .unreadable("the JSON has no text, no blocks and no attachments with a text")
        }
        let (text, isMarkdown) = text.result
        return HookDraft(
            title: title.map(SlackText.shown), text: text, link: links.count == 1 ? links.first : nil,
            isMarkdown: isMarkdown)
    }

    /// - Parameter isWhole: Whether the message is only this attachment, so that its title is the message's.
    private mutating func add(_ attachment: JSONObject, isWhole: Bool) {
        var part = MarkupText()
        let link = attachment.text("title_link")
        if let link { links.insert(link) }
        if let text = attachment.text("pretext") { part.add(line: read(text)) }
        if let name = attachment.text("author_name") { part.add(line: Self.plain(name)) }
        if isWhole {
            title = attachment.text("title")
        } else if let title = attachment.text("title") {
            part.add(line: .heading(SlackText.shown(title), link: link))
        }
        if let text = attachment.text("text") { part.add(line: read(text)) }
        part.add(line: blocks(attachment.objects("blocks")))
        for field in attachment.objects("fields").prefix(Self.partLimit) {
            part.add(field: field.text("title"), field.text("value").map(read) ?? MarkupText())
        }
        for action in attachment.objects("actions").prefix(Self.partLimit) {
            if let link = action.text("url") { part.add(line: .link(link, action.text("text").map(SlackText.decoded))) }
        }
        if let image = attachment.text("image_url") { part.add(line: .link(image)) }
        if let text = attachment.text("footer") { part.add(line: Self.plain(text)) }
        if part.isEmpty, title == nil, let text = attachment.text("fallback") { part = Self.plain(text) }
        text.add(line: part)
    }

    private static func plain(_ text: String) -> MarkupText {
        MarkupText(SlackText.shown(text))
    }

    // MARK: - Blocks

    private func blocks(_ blocks: [JSONObject]) -> MarkupText {
        var result = MarkupText()
        for block in blocks.prefix(Self.partLimit) {
            switch block.text("type") {
            case "markdown":
                result.add(line: ForeignMarkdown.read(block.text("text") ?? ""))
            case "image":
                if let image = block.text("image_url") { result.add(line: .link(image, block.text("alt_text"))) }
            case "rich_text": result.add(line: rich(block))
            default:
                // Sections, headers, contexts and buttons.
                if let text = block.object("text") { result.add(line: self.text(text)) }
                for field in block.objects("fields").prefix(Self.partLimit) { result.add(line: text(field)) }
                let elements = block.objects("elements").prefix(Self.partLimit)
                for element in elements + [block.object("accessory")].compactMap(\.self) {
                    if let url = element.text("url") {
                        result.add(line: .link(url, element.text("text", "text").map(SlackText.decoded)))
                    } else if ["mrkdwn", "plain_text"].contains(element.text("type")) {
                        result.add(line: text(element))
                    }
                }
            }
        }
        return result
    }

    /// Reads a text object.
    private func text(_ object: JSONObject) -> MarkupText {
        guard let text = object.text("text") else { return MarkupText() }
        return object.text("type") == "plain_text" ? Self.plain(text) : read(text)
    }

    private static let richMarks = [
        (style: "bold", mark: "**"), (style: "italic", mark: "*"), (style: "strike", mark: "~~"),
    ]

    /// Reads a rich text. The JSON parser limits the depth.
    private func rich(_ parent: JSONObject) -> MarkupText {
        let bullet = parent.text("type") == "rich_text_list" ? "• " : ""
        var result = MarkupText()
        for part in parent.objects("elements").prefix(Self.partLimit) {
            let text = part["text"]?.text.map { FieldText.fitting($0, limit: MessageText.highestLimit) }
            if part["elements"] != nil {
                var line = MarkupText(bullet)
                line.add(after: rich(part))
                result.add(line: line)
            } else if let link = part.text("url") {
                result.add(link: link, text: text)
            } else if let text {
                // Markdown has no emphasis that begins or ends with a blank.
                let marks = text == FieldText.trimmed(text) ? Self.richMarks : []
                let used = marks.filter { part.value(["style", $0.style]) == .bool(true) }.map(\.mark)
                used.forEach { result.add(mark: $0) }
                result.add(text)
                used.reversed().forEach { result.add(mark: $0) }
            } else {
                let name = part.text("name").map { SlackText.shown(":\($0):") }
                result.add(name ?? part.text("user_id").map { "@\($0)" } ?? "")
            }
        }
        return result
    }
}

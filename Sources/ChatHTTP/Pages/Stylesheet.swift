import NIOCore

/// `/style.css`: the one stylesheet of all pages. Follows the system's light or dark setting and text size.
enum Stylesheet {
    static let text = ByteBuffer(
        string: """
            :root { color-scheme: light dark; --accent: #0b63ce; --line: #767680; --muted: #5c5c66; }
            @media (prefers-color-scheme: dark) { :root { --accent: #6cb2ff; --line: #8e8e99; --muted: #a9a9b3; } }
            * { box-sizing: border-box; }
            body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; }
            main { max-width: 38rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
            h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 1rem; }
            h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
            a { color: var(--accent); }
            li { margin: .35rem 0; }
            code { font: .95em ui-monospace, monospace; overflow-wrap: anywhere; }
            form { display: grid; gap: 1rem; margin: 1.5rem 0; }
            label { display: block; font-weight: 600; }
            .hint { display: block; color: var(--muted); font-size: .9rem; }
            input, textarea { width: 100%; margin-top: .25rem; padding: .6rem .7rem; font: inherit;
              border: 1px solid var(--line); border-radius: .5rem; }
            textarea { min-height: 6rem; resize: vertical; }
            button { justify-self: start; padding: .7rem 1.4rem; font: inherit; font-weight: 600; color: #fff;
              background: #0b63ce; border: 0; border-radius: .5rem; cursor: pointer; }
            :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }

            """)
}

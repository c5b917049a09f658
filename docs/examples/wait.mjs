// Prints a room's messages as they come, and misses none when the connection is lost. For Node.js 18 and later.
//
//     PUSHCHAT_TOKEN=pct_… node wait.mjs https://chat.example.org kitchen

const [relay, room] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${process.env.PUSHCHAT_TOKEN}` };
for (;;) {
    try {
        const response = await fetch(`${relay}/events?room=${encodeURIComponent(room)}`, { headers });
        if (response.status >= 400 && response.status < 429) {
            console.error(await response.text());
            process.exit(1);
        }
        let text = "";
        for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
            const events = (text + part).split("\n\n");
            text = events.pop();
            for (const event of events) {
                const field = (name) => event.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1];
                headers["Last-Event-ID"] = field("id") ?? headers["Last-Event-ID"] ?? "0"; // where the stream resumes
                if (field("event") !== "message") continue;
                const message = JSON.parse(field("data"));
                console.log(`${message.name}: ${message.text}`);
            }
        }
    } catch (error) {
        console.error(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
}

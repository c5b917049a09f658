"use strict";
// Messages in Markdown. Emphasis, code, links, lists, quotes and headings become elements, everything else stays text. Loads
// nothing. The work grows with the length of the text, whatever it is.

// The maximum number of elements within each other.
const maxDepth = 8;
const escapes = /\\([!-/:-@[-`{-~])/g;
const tokens = /\\[!-/:-@[-`{-~]|`+|<[^\s<>]+>|https?:\/\/(?:\\[!-/:-@[-`{-~]|[^\s<>"\\\u200e\u200f\u202a-\u202e\u2066-\u2069])+|\*+|_+|~+|!?\[|\]/gi;
const [fenceMark, quoteMark, headMark] = [/^\s*(`{3,}|~{3,})[^`]*$/, /^\s{0,3}> ?/, /^#{1,6}\s+/];
const itemMark = /^\s*(?:[-*+]|(\d{1,9})[.)])(?:\s|$)/;

// Returns the blocks of some lines.
function markdownBlocks(lines, depth = 0) {
  const blocks = [];
  let index = 0;
  const takeWhile = (test) => {
    const start = index;
    while (index < lines.length && test(lines[index])) index += 1;
    return lines.slice(start, index);
  };
  const add = (name, children) => {
    blocks.push(element(name));
    blocks.at(-1).append(...children);
  };
  const isText = (line) => depth === maxDepth || ![fenceMark, quoteMark, headMark, itemMark].some((mark) => mark.test(line));
  while (index < lines.length) {
    const line = lines[index];
    const [, fence] = fenceMark.exec(line) ?? [];
    const [mark, number] = itemMark.exec(line) ?? [];
    if (isText(line)) {
      const text = takeWhile((line) => line.trim() && isText(line)).map((line) => line.trimEnd());
      if (text.length) add("p", markdownNodes(text.join("\n")));
      else index += 1;
    } else if (fence) {
      index += 1;
      add("pre", [takeWhile((line) => line.trim().length < fence.length || line.trim().replaceAll(fence[0], "")).join("\n")]);
      index += 1;
    } else if (quoteMark.test(line)) {
      add("blockquote", markdownBlocks(takeWhile((line) => quoteMark.test(line)).map((line) => line.replace(quoteMark, "")), depth + 1));
    } else if (mark) {
      const name = number ? "OL" : "UL";
      if (blocks.at(-1)?.tagName !== name) add(name, []);
      if (number && !blocks.at(-1).firstChild) blocks.at(-1).start = number;
      index += 1;
      // Further lines of an item are indented.
      const more = takeWhile((line) => /^(?:\t| {2,})\S/.test(line)).map((line) => line.slice(Math.min(mark.length, line.search(/\S/))));
      const item = element("li");
      item.append(...markdownBlocks([line.slice(mark.length), ...more], depth + 1));
      blocks.at(-1).append(item);
    } else {
      index += 1;
      add("p", [element("strong")]);
      blocks.at(-1).firstChild.append(...markdownNodes(line.replace(headMark, "").trim()));
    }
  }
  return blocks;
}

// Returns the beginning of a text in Markdown, without marks.
function markdownText(text) {
  const place = element("div");
  place.append(...markdownBlocks(text.slice(0, 500).split("\n")));
  place.querySelectorAll(".only-spoken, .link-host").forEach((part) => part.remove());
  return [...place.children].map((block) => block.textContent).join(" ");
}

// Returns the nodes of a paragraph.
function markdownNodes(text) {
  // Texts, nodes, marks that may begin an element, and `ending` for the end of one.
  const [parts, ending, codes, latest] = [[], {}, new Map(), new Map()];
  // Marks that nothing has ended yet: in their order, and by their sign.
  const [open, bySign] = [[], { "*": [], _: [], "~": [], "[": [] }];
  for (const { 0: { length }, index } of text.matchAll(/`+/g)) {
    codes.set(latest.get(length), index);
    latest.set(length, index);
  }
  const begin = (mark) => [parts, open, bySign[mark.sign]].forEach((list) => list.push(mark));
  // Removes the marks behind another one, because no element can end outside of the one around it.
  const dropAfter = (mark) => {
    while (open.at(-1) !== mark) {
      const last = open.pop();
      if (bySign[last.sign].at(-1) === last) bySign[last.sign].pop();
    }
  };
  let end = 0;
  for (let found; (tokens.lastIndex = end, found = tokens.exec(text));) {
    const { 0: token, index } = found;
    const sign = token.at(-1) === "[" ? "[" : token[0];
    parts.push(text.slice(end, index));
    end = index + token.length;
    if (sign === "\\") parts.push(token[1]);
    else if (sign === "[") begin({ sign, literal: token, tags: [], end });
    else if (sign === "`") {
      const last = codes.get(index);
      parts.push(last ? element("code", "", text.slice(end, last).trim()) : token);
      end = last ? last + token.length : end;
    } else if (sign === "]") {
      const label = bySign["["].pop();
      const target = label && text[end] === "(" ? linkTarget(text, end + 1) : null;
      const words = target && text.slice(label.end, index);
      if (!target) parts.push(sign);
      else {
        dropAfter(label);
        bySign["["] = [];
        // The host is visible unless the label is an address of the same host.
        const isHonest = !words || webAddress(words)?.host === target.address.host;
        Object.assign(label, { literal: "", tags: [anchor(target.address, words ? "" : target.address.href)] });
        parts.push(ending, isHonest ? "" : element("span", "link-host", " (" + target.address.host + ")"));
        end = target.end;
      }
    } else if ("*_~".includes(sign)) {
      addMark(sign, token.length, text[index - 1], text[end] && String.fromCodePoint(text.codePointAt(end)));
    } else {
      const source = sign === "<" ? token.slice(1, -1) : withoutPunctuation(token).replace(/\\$/, "");
      const address = honestAddress(source);
      parts.push(address ? anchor(address, source.replace(escapes, "$1")) : sign);
      end = address && sign === "<" ? end : index + (address ? source.length : 1);
    }
  }
  parts.push(text.slice(end));
  return builtNodes(parts, ending);

  // Ends the emphasis that a mark may end, and begins one with the rest of it.
  function addMark(sign, length, before = " ", after = " ") {
    const [[isAfterWord, isBeforeWord], [isAfterBlank, isBeforeBlank]] = [/[\p{Alphabetic}\p{N}]/u, /\s/].map((kind) => [kind.test(before), kind.test(after)]);
    const opens = !isBeforeBlank && (isBeforeWord || !isAfterWord) && !(sign === "_" && isAfterWord);
    const ends = !isAfterBlank && (isAfterWord || !isBeforeWord) && !(sign === "_" && isBeforeWord);
    const isMark = sign !== "~" || length === 2;
    let count = length;
    for (let last; isMark && ends && count > 0 && (last = bySign[sign].at(-1));) {
      // CommonMark's rule for marks within a word, such as the single ones in `**a*b*c**`.
      if ((last.ends || opens) && (count + last.count) % 3 === 0 && count % 3 !== 0) break;
      dropAfter(last);
      const size = Math.min(2, count, last.count);
      last.tags.unshift(element(sign === "~" ? "del" : size === 2 ? "strong" : "em"));
      parts.push(ending);
      count -= size;
      last.count -= size;
      if (last.count === 0) dropAfter(open.at(-2));
    }
    if (isMark && opens && count > 0) begin({ sign, count, tags: [], ends });
    else parts.push(sign.repeat(count));
  }
}

// Puts parts into the elements around them.
function builtNodes(parts, ending) {
  const top = document.createDocumentFragment();
  // Each with the child in front of which the next one belongs: a link ends with words for screen readers.
  const stack = [[top, null]];
  // The text since the last element.
  let run = "";
  for (const part of parts) {
    const [place, before] = stack.at(-1);
    const text = part.tags ? part.literal ?? part.sign.repeat(part.count) : part;
    if (typeof text === "string" && text) run += text;
    if (run && (typeof text !== "string" || part.tags?.length)) {
      place.insertBefore(document.createTextNode(run), before);
      run = "";
    }
    if (part === ending) stack.pop();
    else if (part instanceof Node) place.insertBefore(part, before);
    else {
      for (const tag of part.tags ?? []) {
        const [place, before] = stack.at(-1);
        if (stack.length <= maxDepth) place.insertBefore(tag, before);
        stack.push(stack.length <= maxDepth ? [tag, tag.lastChild] : [place, before]);
      }
    }
  }
  top.append(run);
  return [...top.childNodes];
}

// Returns the address of a link. Null unless it is a page whose host nothing hides.
function honestAddress(source) {
  const address = webAddress(source.replace(escapes, "$1"));
  return address && !address.username && !address.password ? address : null;
}

// Returns the address in the brackets behind a link's label, and the index after them. Null if there is none.
function linkTarget(text, start) {
  let depth = 1;
  // Each nested bracket may begin another search, so the limit bounds the work for each character.
  for (let end = start; end < text.length && text[end] !== "\n" && depth <= maxDepth; end += 1) {
    if (text[end] === "(") depth += 1;
    else if (text[end] === ")") depth -= 1;
    if (depth > 0) continue;
    const [, source] = /^<?(\S*?)>?(?:\s+(?:"[^"]*"|'[^']*'))?$/.exec(text.slice(start, end)) ?? [];
    const address = source && honestAddress(source);
    return address ? { address, end: end + 1 } : null;
  }
  return null;
}

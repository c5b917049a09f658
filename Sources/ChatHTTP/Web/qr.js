"use strict";
// QR codes (ISO/IEC 18004): byte mode, error correction M, versions 1 to 15. `qrCode(bytes)` returns rows of booleans without
// the quiet zone, true for dark. It returns null if the bytes do not fit.

const qrCode = (() => {
  // For each version: the error correction codewords per block, then one or two pairs of the number of blocks and their data
  // codewords.
  const versions = [
    [10, [1, 16]], [16, [1, 28]], [26, [1, 44]], [18, [2, 32]], [24, [2, 43]], [16, [4, 27]], [18, [4, 31]],
    [22, [2, 38], [2, 39]], [22, [3, 36], [2, 37]], [26, [4, 43], [1, 44]], [30, [1, 50], [4, 51]],
    [22, [6, 36], [2, 37]], [22, [8, 37], [1, 38]], [24, [4, 40], [5, 41]], [24, [5, 41], [5, 42]],
  ];
  // The centers of the alignment patterns of each version.
  const alignments = [
    [], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50], [6, 30, 54],
    [6, 32, 58], [6, 34, 62], [6, 26, 46, 66], [6, 26, 48, 70],
  ];
  const masks = [
    (x, y) => (x + y) % 2, (x, y) => y % 2, (x) => x % 3, (x, y) => (x + y) % 3,
    (x, y) => (Math.floor(y / 2) + Math.floor(x / 3)) % 2, (x, y) => (x * y) % 2 + (x * y) % 3,
    (x, y) => ((x * y) % 2 + (x * y) % 3) % 2, (x, y) => ((x + y) % 2 + (x * y) % 3) % 2,
  ];

  // The Galois field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1.
  const power = new Uint8Array(512);
  const exponent = new Uint8Array(256);
  for (let i = 0, value = 1; i < 255; i += 1) {
    power[i] = power[i + 255] = value;
    exponent[value] = i;
    value = (value << 1) ^ (value & 0x80 ? 0x11d : 0);
  }
  const product = (a, b) => (a && b ? power[exponent[a] + exponent[b]] : 0);

  function correction(data, count) {
    let generator = [1];
    for (let i = 0; i < count; i += 1) {
      const next = new Array(generator.length + 1).fill(0);
      generator.forEach((factor, index) => {
        next[index] ^= factor;
        next[index + 1] ^= product(factor, power[i]);
      });
      generator = next;
    }
    const rest = new Array(count).fill(0);
    for (const byte of data) {
      const factor = byte ^ rest.shift();
      rest.push(0);
      for (let i = 0; i < count; i += 1) rest[i] ^= product(generator[i + 1], factor);
    }
    return rest;
  }

  function capacity([, ...groups]) {
    return groups.reduce((sum, [blocks, size]) => sum + blocks * size, 0);
  }

  function codewords(bytes, version) {
    const [corrections, ...groups] = versions[version - 1];
    const bits = [];
    const put = (value, width) => {
      for (let i = width - 1; i >= 0; i -= 1) bits.push((value >> i) & 1);
    };
    put(4, 4);
    put(bytes.length, version < 10 ? 8 : 16);
    bytes.forEach((byte) => put(byte, 8));
    const room = capacity(versions[version - 1]) * 8;
    put(0, Math.min(4, room - bits.length));
    while (bits.length % 8) bits.push(0);
    const data = [];
    for (let i = 0; i < bits.length; i += 8) data.push(parseInt(bits.slice(i, i + 8).join(""), 2));
    for (let pad = 0xec; data.length < room / 8; pad ^= 0xfd) data.push(pad);

    const blocks = [];
    for (const [number, size] of groups) {
      for (let i = 0; i < number; i += 1) blocks.push(data.splice(0, size));
    }
    const checks = blocks.map((block) => correction(block, corrections));
    const result = [];
    for (const part of [blocks, checks]) {
      const longest = Math.max(...part.map((block) => block.length));
      for (let i = 0; i < longest; i += 1) {
        for (const block of part) if (i < block.length) result.push(block[i]);
      }
    }
    return result;
  }

  // Appends to a value the remainder of its division by a polynomial.
  function coded(value, degree, polynomial) {
    let rest = value << degree;
    for (let bit = 31 - Math.clz32(rest); bit >= degree; bit = 31 - Math.clz32(rest)) rest ^= polynomial << (bit - degree);
    return (value << degree) | rest;
  }

  // Returns the modules that do not depend on the text: finders, timing, alignment, version. All others are null.
  function frame(version) {
    const size = 17 + 4 * version;
    const rows = Array.from({ length: size }, () => new Array(size).fill(null));
    const finder = (left, top) => {
      for (let y = -1; y <= 7; y += 1) {
        for (let x = -1; x <= 7; x += 1) {
          if (rows[top + y]?.[left + x] === undefined) continue;
          const ring = Math.max(Math.abs(x - 3), Math.abs(y - 3));
          rows[top + y][left + x] = ring !== 2 && ring !== 4;
        }
      }
    };
    finder(0, 0);
    finder(size - 7, 0);
    finder(0, size - 7);
    const centres = alignments[version - 1];
    for (const cy of centres) {
      for (const cx of centres) {
        if (rows[cy][cx] !== null) continue;
        for (let y = -2; y <= 2; y += 1) {
          for (let x = -2; x <= 2; x += 1) rows[cy + y][cx + x] = Math.max(Math.abs(x), Math.abs(y)) !== 1;
        }
      }
    }
    for (let i = 8; i < size - 8; i += 1) {
      rows[6][i] ??= i % 2 === 0;
      rows[i][6] ??= i % 2 === 0;
    }
    if (version >= 7) {
      const bits = coded(version, 12, 0x1f25);
      for (let i = 0; i < 18; i += 1) {
        const isDark = ((bits >> i) & 1) === 1;
        rows[Math.floor(i / 3)][size - 11 + (i % 3)] = isDark;
        rows[size - 11 + (i % 3)][Math.floor(i / 3)] = isDark;
      }
    }
    format(rows, 0);
    return rows;
  }

  function format(rows, mask) {
    const size = rows.length;
    const bits = coded(mask, 10, 0x537) ^ 0x5412;
    for (let i = 0; i < 15; i += 1) {
      const isDark = ((bits >> i) & 1) === 1;
      const along = i < 6 ? i : i < 8 ? i + 1 : i === 8 ? 7 : 14 - i;
      if (i < 8) rows[along][8] = isDark;
      else rows[8][along] = isDark;
      if (i < 8) rows[8][size - 1 - i] = isDark;
      else rows[size - 15 + i][8] = isDark;
    }
    rows[size - 8][8] = true;
  }

  function filled(empty, words, mask) {
    const rows = empty.map((row) => row.slice());
    const size = rows.length;
    let bit = 0;
    for (let right = size - 1; right > 0; right -= 2) {
      if (right === 6) right = 5;
      const isUpwards = ((right + 1) & 2) === 0;
      for (let step = 0; step < size; step += 1) {
        const y = isUpwards ? size - 1 - step : step;
        for (const x of [right, right - 1]) {
          if (empty[y][x] !== null) continue;
          const isSet = bit < words.length * 8 && ((words[bit >> 3] >> (7 - (bit & 7))) & 1) === 1;
          bit += 1;
          rows[y][x] = isSet !== (masks[mask](x, y) === 0);
        }
      }
    }
    format(rows, mask);
    return rows;
  }

  // Returns the penalty of a code: the higher, the harder it is to read.
  function penalty(rows) {
    const size = rows.length;
    let sum = 0;
    const lines = rows.concat(rows.map((_, x) => rows.map((row) => row[x])));
    for (const line of lines) {
      const text = line.map(Number).join("");
      for (const run of text.match(/0{5,}|1{5,}/g) ?? []) sum += run.length - 2;
      for (let i = 0; i + 11 <= size; i += 1) {
        const part = text.slice(i, i + 11);
        if (part === "10111010000" || part === "00001011101") sum += 40;
      }
    }
    let dark = 0;
    rows.forEach((row, y) => row.forEach((isDark, x) => {
      dark += isDark;
      if (y && x && isDark === row[x - 1] && isDark === rows[y - 1][x] && isDark === rows[y - 1][x - 1]) sum += 3;
    }));
    return sum + 10 * Math.floor(Math.abs((dark * 20) / (size * size) - 10));
  }

  return (bytes) => {
    const index = versions.findIndex((version, i) => bytes.length + (i < 9 ? 2 : 3) <= capacity(version));
    if (index < 0) return null;
    const empty = frame(index + 1);
    const words = codewords(bytes, index + 1);
    return masks.map((_, mask) => filled(empty, words, mask))
      .reduce((best, rows) => (penalty(rows) < penalty(best) ? rows : best));
  };
})();

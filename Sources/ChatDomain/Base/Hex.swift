/// Converts between bytes and hexadecimal digits. Its functions run for each push. They are not generic, because
/// generic code is not specialised for callers in other modules.
package enum Hex {
    package static func isDigit(_ byte: UInt8) -> Bool { value(byte) != nil }

    /// Returns the value of a digit of either case. `nil` for any other byte.
    package static func value(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// Whether all bytes are digits, with letters in lower case.
    package static func isLowerCase(_ digits: UnsafeRawBufferPointer) -> Bool {
        for index in 0..<digits.count {
            switch digits[index] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"): break
            default: return false
            }
        }
        return true
    }

    /// Returns the bytes of an even number of digits of either case. `nil` for any other text.
    package static func bytes(_ digits: UnsafeRawBufferPointer) -> [UInt8]? {
        guard digits.count.isMultiple(of: 2) else { return nil }
        var isValid = true
        let bytes = [UInt8](unsafeUninitializedCapacity: digits.count / 2) { storage, count in
            for index in 0..<digits.count / 2 {
                guard let high = value(digits[2 * index]), let low = value(digits[2 * index + 1]) else {
                    isValid = false
                    return
                }
                storage[index] = high << 4 | low
                count = index + 1
            }
        }
        return isValid ? bytes : nil
    }

    package static func bytes(_ digits: [UInt8]) -> [UInt8]? {
        digits.withUnsafeBytes { bytes($0) }
    }

    /// Returns the digit of a value below 16, in lower case.
    package static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value
    }

    /// Returns the digits in lower case.
    package static func text(_ bytes: [UInt8]) -> String {
        return String(unsafeUninitializedCapacity: bytes.count * 2) { storage in
            for (index, byte) in bytes.enumerated() {
                storage[2 * index] = digit(byte >> 4)
                storage[2 * index + 1] = digit(byte & 15)
            }
            return bytes.count * 2
        }
    }
}

extension UInt8 {
    package var isASCIIDigit: Bool { UInt8(ascii: "0") <= self && self <= UInt8(ascii: "9") }
    /// Whether the byte is a letter, in either case.
    package var isASCIILetter: Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self | 0x20) }
}

//! The encoding of files and of standard input.

/// The byte order mark, as a character.
const MARK: char = '\u{feff}';

/// Returns bytes as text without a byte order mark: UTF-8, or UTF-16 with the mark, as editors and shells of Windows
/// write it.
///
/// # Errors
/// The bytes are neither UTF-8 nor UTF-16 with a byte order mark, or the text contains NUL. The message has a remedy.
pub fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let text = decode_with_mark(bytes)?;
    Ok(text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text))
}

/// Decodes the bytes, and keeps the byte order mark as the first character.
fn decode_with_mark(bytes: Vec<u8>) -> Result<String, String> {
    let decode_unit: Option<fn([u8; 2]) -> u16> = match bytes.get(..2) {
        Some([0xFF, 0xFE]) => Some(u16::from_le_bytes),
        Some([0xFE, 0xFF]) => Some(u16::from_be_bytes),
        _ => None,
    };
    let Some(decode_unit) = decode_unit else {
        let remedy = if bytes.contains(&0) { "it looks like UTF-16 without a byte order mark: " } else { "" };
        return String::from_utf8(bytes)
            .map_err(|why| {
                let valid = why.utf8_error().valid_up_to();
                format!("not UTF-8 from byte {valid} on; {remedy}save it as UTF-8")
            })
            .and_then(|text| match text.contains('\0') {
                true => Err("the text contains NUL; it looks like UTF-16 without a byte order mark: save it as UTF-8"
                    .to_owned()),
                false => Ok(text),
            });
    };
    let (units, odd_byte) = bytes[2..].as_chunks::<2>();
    let text = String::from_utf16(&units.iter().map(|pair| decode_unit(*pair)).collect::<Vec<_>>());
    match text {
        Ok(text) if odd_byte.is_empty() => Ok(text),
        _ => Err("it begins like UTF-16 and is none; save it as UTF-8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn utf_16_is_decoded_and_other_encodings_are_refused_with_a_remedy() {
        let text = "kind: Workflow # 42 €";
        let units = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let marked = |mark: [u8; 2], rest: Vec<u8>| [mark.to_vec(), rest].concat();
        assert_eq!(decode(marked([0xFF, 0xFE], units(u16::to_le_bytes))).unwrap(), text);
        assert_eq!(decode(marked([0xFE, 0xFF], units(u16::to_be_bytes))).unwrap(), text);
        assert_eq!(decode(text.as_bytes().to_vec()).unwrap(), text);
        let why = |bytes: Vec<u8>| decode(bytes).unwrap_err();
        assert_eq!(why(marked([0xFF, 0xFE], vec![0x61])), "it begins like UTF-16 and is none; save it as UTF-8");
        assert_eq!(why(b"price: \xA3".to_vec()), "not UTF-8 from byte 7 on; save it as UTF-8");
        assert!(why(units(u16::to_le_bytes)).contains("UTF-16 without a byte order mark: save it as UTF-8"));
        assert!(why(b"a\0b".to_vec()).contains("UTF-16 without a byte order mark"), "ASCII letters in UTF-16");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(decode("\u{feff}{}".as_bytes().to_vec()).unwrap(), "{}");
        assert_eq!(decode("{}\u{feff}".as_bytes().to_vec()).unwrap(), "{}\u{feff}", "elsewhere it is text");
        assert_eq!(decode(vec![0xFE, 0xFF, 0, 0x61]).unwrap(), "a");
    }
}

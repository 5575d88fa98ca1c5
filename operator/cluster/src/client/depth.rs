//! Replaces too deeply nested values in a stream of JSON.
//!
//! **Invariant:** delays no bytes, reads no brackets within strings, and changes nothing that is not too deep. For
//! bytes that are not JSON, the only promise is that the filter ends.

use bytes::Bytes;

/// The largest depth of nested objects and lists. serde_json refuses more than 128, and an object of a list is a few
/// levels below the list.
pub const MAX_DEPTH: u32 = 100;

/// The filter of one stream of JSON, with the depth at the end of the bytes so far.
#[derive(Clone, Debug, Default)]
pub struct DepthFilter {
    depth: u32,
    in_text: bool,
    escaped: bool,
}

/// The effect of a byte on the output.
enum ByteEffect {
    None,
    /// The byte begins a hidden value.
    Hides,
    /// The byte ends a hidden value.
    Shows,
}

impl DepthFilter {
    /// Returns the bytes with `null` in place of every object or list below [`MAX_DEPTH`] others. The next bytes of the
    /// same stream must be passed to the same filter.
    #[must_use]
    pub fn pass(&mut self, bytes: Bytes) -> Bytes {
        let mut kept = Vec::new();
        let mut seen_from = (self.depth <= MAX_DEPTH).then_some(0);
        for (index, byte) in bytes.iter().enumerate() {
            match self.step(*byte) {
                ByteEffect::None => {}
                ByteEffect::Hides => {
                    let from = seen_from.take().unwrap_or(index);
                    kept.extend_from_slice(&bytes[from..index]);
                    kept.extend_from_slice(b"null");
                }
                ByteEffect::Shows => seen_from = Some(index + 1),
            }
        }
        match seen_from {
            // Nearly always nothing is hidden, and nothing is copied.
            Some(0) => bytes,
            Some(from) => {
                kept.extend_from_slice(&bytes[from..]);
                kept.into()
            }
            None => kept.into(),
        }
    }

    /// Follows texts and brackets by one byte. Returns the effect of the byte on the output.
    fn step(&mut self, byte: u8) -> ByteEffect {
        // No byte of a multi-byte UTF-8 character equals a quote, a backslash or a bracket.
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                if self.depth == MAX_DEPTH + 1 {
                    return ByteEffect::Hides;
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == MAX_DEPTH {
                    return ByteEffect::Shows;
                }
            }
            _ => {}
        }
        ByteEffect::None
    }
}

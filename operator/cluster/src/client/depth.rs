//! Hides what nests too deep in JSON, as its bytes pass by.
//!
//! It must not hold bytes back, look into texts, or change anything that is not too deep. Of bytes that are no JSON it
//! promises nothing but to end.

use bytes::Bytes;

/// How deep objects and lists may nest: serde_json gives up at 128, and what reads a whole list may have gone down a
/// few levels before it comes to an object.
pub const MAX_DEPTH: u32 = 100;

/// The filter of one stream of JSON: how deep it nests where the bytes have come to.
#[derive(Clone, Debug, Default)]
pub struct DepthFilter {
    depth: u32,
    in_text: bool,
    escaped: bool,
}

/// The effect of a byte on what is passed on.
enum ByteEffect {
    None,
    /// With this byte begins what is hidden.
    Hides,
    /// With this byte ends what was hidden.
    Shows,
}

impl DepthFilter {
    /// The same bytes, with `null` in the place of every object or list below [`MAX_DEPTH`] others. The next bytes of
    /// the same text go through the same filter.
    #[must_use]
    pub fn pass(&mut self, bytes: Bytes) -> Bytes {
        let mut kept = Vec::new();
        let mut seen_from = (self.depth <= MAX_DEPTH).then_some(0);
        for (at, byte) in bytes.iter().enumerate() {
            match self.step(*byte) {
                ByteEffect::None => {}
                ByteEffect::Hides => {
                    let from = seen_from.take().unwrap_or(at);
                    kept.extend_from_slice(&bytes[from..at]);
                    kept.extend_from_slice(b"null");
                }
                ByteEffect::Shows => seen_from = Some(at + 1),
            }
        }
        match seen_from {
            // Nothing was hidden, as nearly always: nothing is copied.
            Some(0) => bytes,
            Some(from) => {
                kept.extend_from_slice(&bytes[from..]);
                kept.into()
            }
            None => kept.into(),
        }
    }

    fn step(&mut self, byte: u8) -> ByteEffect {
        // No byte of a longer UTF-8 character looks like one of these.
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

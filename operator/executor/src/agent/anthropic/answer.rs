//! An answer of the Messages API while it is received: a whole message, or the events of its blocks.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use signoff_api::{
    journal::Usage,
    turn::{OpaquePart, TurnCalls},
};

use super::{OF_CALL, is_blank};
use crate::agent::{
    collected::{CallPiece, Collected, Finish, MAX_OPAQUE},
    fields::Fields,
    protocol::{Reading, Unreadable, foreign_tool, incomplete, parse_object},
    requested::escaped_size,
};

/// The maximum number of blocks of an answer.
const MOST_BLOCKS: usize = 4 * TurnCalls::MAX_CALLS;

const INPUT: &str = "input";
const PARTIAL_INPUT: &str = "partial_json";
const TEXT: &str = "text";
const THINKING: &str = "thinking";
const SIGNATURE: &str = "signature";

const INPUT_TOKENS: &str = "input_tokens";
const CACHE_CREATION_TOKENS: &str = "cache_creation_input_tokens";
const CACHE_READ_TOKENS: &str = "cache_read_input_tokens";
const OUTPUT_TOKENS: &str = "output_tokens";
const THINKING_TOKENS: &str = "thinking_tokens";

/// A message while it is received.
#[derive(Default)]
pub(super) struct MessageAnswer {
    collected: Collected,
    has_begun: bool,
    /// The blocks in order.
    parts: Vec<Part>,
    /// The tokens by the name of their field: a later number replaces an earlier one.
    tokens: BTreeMap<&'static str, i64>,
    /// The size of the thinking within JSON strings, in bytes. If it is too long to be sent back, nothing of it is
    /// kept.
    thinking: usize,
}

/// A block, as far as it was received.
struct Part {
    /// The number of the block in the stream.
    index: i64,
    is_open: bool,
    kind: BlockKind,
    /// The block at its beginning, as JSON. For a call: only the fields that the API does not define.
    begun: String,
    /// The texts that arrive in pieces, by field. For a call: the input at its beginning.
    texts: BTreeMap<&'static str, String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    /// Includes thinking that the server redacted.
    Thinking,
    /// The position among the kept calls, or `None` if the call was dropped.
    Call(Option<usize>),
}

impl Reading for MessageAnswer {
    fn take(&mut self, document: &[u8]) -> Result<(), Unreadable> {
        if self.collected.is_complete {
            return Ok(());
        }
        let event = parse_object(document)?;
        match kind(&event)?.as_str() {
            "message" => self.take_whole(&event),
            "message_start" => {
                self.has_begun = true;
                self.read_usage(&event.object("message")?)
            }
            "content_block_start" => self.start_block(event.count("index"), &event.object("content_block")?),
            "content_block_delta" => self.add_delta(event.count("index"), &event.object("delta")?),
            "content_block_stop" => {
                self.end_block(event.count("index"));
                Ok(())
            }
            "message_delta" => {
                self.read_usage(&event)?;
                self.read_stop_reason(&event.object("delta")?)
            }
            "message_stop" => {
                self.collected.is_complete = true;
                Ok(())
            }
            "error" => Err(Unreadable::Because("answered an error without saying which".to_owned())),
            // Pings, and events of later versions.
            _ => Ok(()),
        }
    }

    fn bytes(&self) -> usize {
        self.collected.bytes() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    fn end(self: Box<Self>, _is_done: bool) -> Result<Collected, Unreadable> {
        let Self { mut collected, has_begun, parts, tokens, thinking } = *self;
        // A message that was cut at its maximum length ends within a block.
        let is_usual = matches!(collected.finish, None | Some(Finish::Usual));
        if !has_begun || !collected.is_complete || (is_usual && parts.iter().any(|part| part.is_open)) {
            return Err(incomplete());
        }
        let has_thinking = parts.iter().any(|part| part.kind == BlockKind::Thinking);
        let keeps_calls = has_thinking || parts.iter().any(Part::is_call_with_own_fields);
        let is_too_long = thinking > MAX_OPAQUE;
        collected.add_fields(is_too_long.then_some(Err(thinking)), OpaquePart::Item);
        for part in parts {
            match part.kind {
                BlockKind::Text => {
                    let text = part.text(TEXT)?;
                    if has_thinking && !is_blank(&text) {
                        collected.add_opaque(OpaquePart::Item(part.json()?));
                    }
                    collected.text.push_str(&text);
                }
                // Thinking without its end has no signature, and the server would refuse it.
                BlockKind::Thinking if part.is_open || is_too_long => {}
                BlockKind::Thinking => collected.add_opaque(OpaquePart::Item(part.json()?)),
                BlockKind::Call(Some(number)) if keeps_calls => {
                    collected.add_opaque(OpaquePart::Call(number, part.begun))
                }
                BlockKind::Call(_) => {}
            }
        }
        collected.usage = sum_usage(&tokens);
        Ok(collected)
    }
}

impl MessageAnswer {
    /// Reads an answer that is not streamed.
    fn take_whole(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        if message.get("content").is_none() {
            return Err(Unreadable::Form(1, 1));
        }
        let content = message.list::<MOST_BLOCKS>("content")?;
        if content.dropped > 0 {
            return Err(too_many_blocks());
        }
        for block in content.kept {
            self.start_block(0, &block)?;
            self.end_block(0);
        }
        self.read_usage(message)?;
        self.read_stop_reason(message)?;
        (self.has_begun, self.collected.is_complete) = (true, true);
        Ok(())
    }

    fn start_block(&mut self, index: i64, block: &Fields<'_>) -> Result<(), Unreadable> {
        if self.parts.len() == MOST_BLOCKS {
            return Err(too_many_blocks());
        }
        let name = kind(block)?;
        let mut texts = BTreeMap::new();
        let (kind, begun) = match name.as_str() {
            "text" => (BlockKind::Text, block.json()),
            "thinking" | "redacted_thinking" => {
                let json = block.json();
                self.count_thinking(&json);
                (BlockKind::Thinking, if self.thinking > MAX_OPAQUE { String::new() } else { json })
            }
            "tool_use" => {
                if let Some(kind) = foreign_kind(block)? {
                    return Err(foreign_tool(&kind));
                }
                texts.insert(INPUT, block.get(INPUT).map(arguments).transpose()?.unwrap_or_default());
                let (id, tool) = (block.text("id")?.unwrap_or_default(), block.text("name")?.unwrap_or_default());
                let piece = CallPiece { place: Some(self.parts.len() as u64), id, tool, ..CallPiece::default() };
                (BlockKind::Call(self.collected.add_call(piece)), block.others(&OF_CALL).json())
            }
            _ => return Err(foreign_tool(&name)),
        };
        self.parts.push(Part { index, is_open: true, kind, begun, texts });
        Ok(())
    }

    fn add_delta(&mut self, index: i64, delta: &Fields<'_>) -> Result<(), Unreadable> {
        let field = match kind(delta)?.as_str() {
            "text_delta" => TEXT,
            "thinking_delta" => THINKING,
            "signature_delta" => SIGNATURE,
            "input_json_delta" => PARTIAL_INPUT,
            // Citations, and pieces of later versions.
            _ => return Ok(()),
        };
        let piece = delta.text(field)?.unwrap_or_default();
        let open = open_part(&mut self.parts, index).filter(|(_, part)| part.kind.fields().contains(&field));
        let Some((place, part)) = open else {
            return Err(Unreadable::Because("streamed a piece of a block that it had not begun".to_owned()));
        };
        match part.kind {
            BlockKind::Text => part.texts.entry(field).or_default().push_str(&piece),
            BlockKind::Thinking => {
                if self.thinking <= MAX_OPAQUE {
                    part.texts.entry(field).or_default().push_str(&piece);
                }
                self.count_thinking(&piece);
            }
            BlockKind::Call(_) => {
                if !piece.is_empty() {
                    part.texts.remove(INPUT);
                }
                self.add_arguments(place, piece);
            }
        }
        Ok(())
    }

    /// Counts bytes of thinking. Above [`MAX_OPAQUE`], all kept thinking is dropped, because it cannot be sent back.
    fn count_thinking(&mut self, piece: &str) {
        let was_kept = self.thinking <= MAX_OPAQUE;
        self.thinking = self.thinking.saturating_add(escaped_size(piece));
        if was_kept && self.thinking > MAX_OPAQUE {
            for part in self.parts.iter_mut().filter(|part| part.kind == BlockKind::Thinking) {
                part.begun = String::new();
                part.texts.clear();
            }
        }
    }

    fn end_block(&mut self, index: i64) {
        let Some((place, part)) = open_part(&mut self.parts, index) else { return };
        part.is_open = false;
        if let BlockKind::Call(_) = part.kind {
            let input = part.texts.remove(INPUT).unwrap_or_default();
            self.add_arguments(place, input);
        }
    }

    fn add_arguments(&mut self, place: usize, arguments: String) {
        self.collected.add_call(CallPiece { place: Some(place as u64), arguments, ..CallPiece::default() });
    }

    fn read_stop_reason(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        let Some(reason) = message.text("stop_reason")? else { return Ok(()) };
        self.collected.finish = Some(match reason.as_str() {
            "max_tokens" | "model_context_window_exceeded" => Finish::Cut,
            "refusal" => Finish::Declined(reason),
            "pause_turn" => {
                let why = "paused (pause_turn) for tools that the provider runs itself: such tools are never used";
                return Err(Unreadable::Refused(why.to_owned()));
            }
            _ => Finish::Usual,
        });
        Ok(())
    }

    /// Reads the token counts of a message or of an event.
    fn read_usage(&mut self, message: &Fields<'_>) -> Result<(), Unreadable> {
        let usage = message.object("usage")?;
        let details = usage.object("output_tokens_details")?;
        for (fields, name) in [
            (&usage, INPUT_TOKENS),
            (&usage, CACHE_CREATION_TOKENS),
            (&usage, CACHE_READ_TOKENS),
            (&usage, OUTPUT_TOKENS),
            (&details, THINKING_TOKENS),
        ] {
            if fields.get(name).is_some() {
                self.tokens.insert(name, fields.count(name));
            }
        }
        Ok(())
    }
}

impl Part {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.begun.len() + self.texts.values().map(String::len).sum::<usize>()
    }

    fn is_call_with_own_fields(&self) -> bool {
        matches!(self.kind, BlockKind::Call(_)) && self.begun != "{}"
    }

    /// Returns a text: its beginning, followed by its pieces.
    fn text(&self, field: &str) -> Result<String, serde_json::Error> {
        let begun = Fields::of(&self.begun)?.text(field)?.unwrap_or_default();
        Ok(begun + self.texts.get(field).map_or("", String::as_str))
    }

    /// Returns the block as JSON: its beginning with the texts that arrived in pieces.
    fn json(&self) -> Result<String, serde_json::Error> {
        if self.texts.is_empty() {
            return Ok(self.begun.clone());
        }
        let begun = Fields::of(&self.begun)?.into_iter();
        let mut fields: BTreeMap<String, Box<RawValue>> = begun.map(|(name, value)| (name, value.to_owned())).collect();
        for field in self.texts.keys() {
            fields.insert((*field).to_owned(), to_raw_value(&self.text(field)?)?);
        }
        serde_json::to_string(&fields)
    }
}

impl BlockKind {
    /// Returns the fields that arrive in pieces.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Text => &[TEXT],
            Self::Thinking => &[THINKING, SIGNATURE],
            Self::Call(_) => &[PARTIAL_INPUT],
        }
    }
}

/// Returns the position of a block that has not ended, and the block.
fn open_part(parts: &mut [Part], index: i64) -> Option<(usize, &mut Part)> {
    parts.iter_mut().enumerate().rev().find(|(_, part)| part.is_open && part.index == index)
}

/// Returns the type of an event, a block, or a piece of a block.
fn kind(fields: &Fields<'_>) -> Result<String, Unreadable> {
    fields.text("type")?.ok_or(Unreadable::Form(1, 1))
}

/// Returns the kind of a call of no tool of the Workflow: a tool set of the provider, or code that the provider runs.
fn foreign_kind(call: &Fields<'_>) -> Result<Option<String>, Unreadable> {
    let toolset = call.text("toolset_name")?;
    let caller = call.object("caller")?.text("type")?.filter(|caller| caller != "direct");
    Ok(toolset.or(caller))
}

/// Returns an input as text: the JSON of an object, or the text that some servers send instead.
fn arguments(input: &RawValue) -> Result<String, Unreadable> {
    let json = input.get();
    if json.starts_with('{') { Ok(json.to_owned()) } else { Ok(serde_json::from_str(json)?) }
}

fn too_many_blocks() -> Unreadable {
    Unreadable::Because(format!("answered with more than {MOST_BLOCKS} blocks"))
}

fn sum_usage(tokens: &BTreeMap<&'static str, i64>) -> Option<Usage> {
    let count = |name: &str| tokens.get(name).copied().unwrap_or_default();
    let cached = count(CACHE_READ_TOKENS);
    (!tokens.is_empty()).then(|| Usage {
        // The API reports only the tokens after the cached ones.
        input_tokens: count(INPUT_TOKENS).saturating_add(count(CACHE_CREATION_TOKENS)).saturating_add(cached),
        output_tokens: count(OUTPUT_TOKENS),
        cached_tokens: cached,
        reasoning_tokens: count(THINKING_TOKENS),
        cost: None,
    })
}

#[cfg(test)]
mod tests;

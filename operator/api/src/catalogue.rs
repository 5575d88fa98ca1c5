//! The catalogue of an MCP server: the offered tools as a run records them, and the tools that are left out.
//!
//! **Invariant:** a catalogue is within its limits and has unique names, including the tools that are left out. The
//! title and the description of a tool decide nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    digest::{self, Digest},
    tool::Effects,
    values::{JsonObject, count_values},
};

/// The maximum number of tools that a server can list.
pub const MAX_TOOLS: usize = 256;
/// The maximum size of the definition of a tool, in bytes of canonical JSON.
pub const MAX_DEFINITION_BYTES: usize = 16 * 1024;
/// The maximum size of a catalogue, in bytes of canonical JSON of its definitions.
pub const MAX_BYTES: usize = 512 * 1024;
/// The maximum length of the name of a tool, in characters.
pub const MAX_NAME: usize = 64;

/// The maximum length of the name of a tool that is left out, in characters.
const MAX_NAME_LEFT_OUT: usize = 96;
/// The maximum length of the reason why a tool is left out, in characters.
const MAX_WHY: usize = 160;
/// The maximum size of a received definition without the fields that are dropped, in bytes. A longer one is not parsed,
/// because a parsed JSON value takes up to forty times the memory.
const MAX_RECEIVED: usize = 4 * MAX_DEFINITION_BYTES;
/// The maximum nesting of a definition.
const MAX_LEVELS: usize = 32;
/// The first number beyond which not every integer is a float.
const TWO_TO_53: f64 = 9_007_199_254_740_992.0;
/// The maximum number of values in a definition.
const MAX_VALUES_OF_TOOL: usize = 2048;
/// The maximum number of values in all definitions of a catalogue.
const MAX_VALUES: usize = 16 * 2048;
/// The fields of a definition that are neither recorded nor part of its digest.
const NOT_KEPT: [&str; 2] = ["_meta", "icons"];

/// The tools of a server that exist for a run. The response of the record `.tools/<server>`, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalogue {
    /// The tools, in the order of their names.
    tools: Vec<ServerTool>,
    /// The tools that are listed and not offered, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
}

/// A tool as its server describes it: the definition, without `_meta` and icons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ServerTool {
    definition: Map<String, Value>,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    digest: Digest,
    #[serde(skip)]
    bytes: usize,
}

/// A tool that is listed and not offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftOut {
    /// The name; of one that does not fit, the beginning, in ASCII with escapes. Empty if the tool has no name.
    pub name: String,
    /// The reason, for people.
    pub why: String,
}

/// The error of a list that cannot be used. Nothing that the server wrote is repeated but the name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Two tools of one name.
    #[error("it lists the tool {0} twice")]
    Twice(String),
    /// The server has more tools than a run accepts, offered or not.
    #[error("it lists more than {} tools", MAX_TOOLS)]
    TooManyTools,
    /// Definitions that are too long together.
    #[error("its definitions have more than {} bytes", MAX_BYTES)]
    TooLarge,
    /// Definitions with too many values together.
    #[error("its definitions have more than {} values", MAX_VALUES)]
    TooManyValues,
}

/// A catalogue while its server lists it, tool by tool.
#[derive(Debug, Default)]
pub struct Listing {
    catalogue: Catalogue,
    /// The only tool that is kept; `None` for all.
    only: Option<String>,
    /// The names so far; of a name that does not fit its digest.
    names: BTreeSet<String>,
    listed: usize,
    bytes: usize,
    values: usize,
}

/// Whether the name of a tool fits `[A-Za-z0-9_-]{1,64}`: only such tools are offered.
#[must_use]
pub fn fits(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

impl Listing {
    /// Returns a listing that keeps one tool. The names of the others are still checked.
    #[must_use]
    pub fn of_tool(name: &str) -> Self {
        Self { only: Some(name.to_owned()), ..Self::default() }
    }

    /// Adds a tool, the JSON of its definition. `refusal`: returns the reason why the client cannot call a tool with
    /// this definition, or `None`.
    ///
    /// # Errors
    /// The list cannot be used.
    pub fn add(
        &mut self,
        json: &str,
        refusal: impl FnOnce(&Map<String, Value>) -> Option<&'static str>,
    ) -> Result<(), CatalogueError> {
        self.count()?;
        let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(json) else {
            self.leave_out("", &invalid("it is no object"));
            return Ok(());
        };
        fields.retain(|field, _| !NOT_KEPT.contains(&field.as_str()));
        let name = fields.get("name").and_then(|name| serde_json::from_str::<String>(name.get()).ok());
        let Some(name) = name else {
            self.leave_out("", &invalid("it has no name"));
            return Ok(());
        };
        self.claim(&name)?;
        if self.only.as_ref().is_some_and(|only| *only != name) {
            return Ok(());
        }
        let values: usize = fields.values().map(|value| count_values(value.get())).sum();
        if values > MAX_VALUES_OF_TOOL {
            self.leave_out(&name, &format!("its definition has more than {MAX_VALUES_OF_TOOL} values"));
            return Ok(());
        }
        self.values += values;
        if self.values > MAX_VALUES {
            return Err(CatalogueError::TooManyValues);
        }
        let definition = values_of(&fields).and_then(|definition| match unstable(&definition) {
            Some(why) => Err(invalid(why)),
            None => Ok(definition),
        });
        let tool = definition.and_then(|definition| ServerTool::read(&name, definition));
        let tool = tool.and_then(|tool| match refusal(&tool.definition) {
            Some(why) => Err(invalid(why)),
            None => Ok(tool),
        });
        self.put(&name, tool)
    }

    /// Returns the catalogue.
    #[must_use]
    pub fn end(mut self) -> Catalogue {
        self.catalogue.tools.sort_by(|one, other| one.name.cmp(&other.name));
        self.catalogue.left_out.sort();
        self.catalogue
    }

    fn count(&mut self) -> Result<(), CatalogueError> {
        self.listed += 1;
        if self.listed > MAX_TOOLS { Err(CatalogueError::TooManyTools) } else { Ok(()) }
    }

    /// Checks that no other tool of the list has this name, not even one that is left out: a name must mean one tool.
    fn claim(&mut self, name: &str) -> Result<(), CatalogueError> {
        let key = if fits(name) { name.to_owned() } else { Digest::of_bytes(name.as_bytes()).to_string() };
        if self.names.insert(key) { Ok(()) } else { Err(CatalogueError::Twice(shown(name))) }
    }

    fn put(&mut self, name: &str, tool: Result<ServerTool, String>) -> Result<(), CatalogueError> {
        match tool {
            Ok(tool) => {
                self.bytes += tool.bytes;
                if self.bytes > MAX_BYTES {
                    return Err(CatalogueError::TooLarge);
                }
                self.catalogue.tools.push(tool);
            }
            Err(why) => self.leave_out(name, &why),
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        self.catalogue.left_out.push(LeftOut { name: shown(name), why: cut(why, MAX_WHY) });
    }
}

impl Catalogue {
    /// Keeps the tools that exist for a run, by their names.
    #[must_use]
    pub fn only(mut self, exists: impl Fn(&str) -> bool) -> Self {
        self.tools.retain(|tool| exists(&tool.name));
        self.left_out.retain(|tool| exists(&tool.name));
        self
    }

    /// Returns the tools, in the order of their names.
    #[must_use]
    pub fn tools(&self) -> &[ServerTool] {
        &self.tools
    }

    /// Returns the offered tool with this name, or `None`.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ServerTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the tools that are listed and not offered, in the order of their names.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the bytes of all definitions that are offered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tools.iter().map(ServerTool::bytes).sum()
    }
}

/// Reads a catalogue with the same checks as a list of a server. Digests are computed again.
impl<'de> Deserialize<'de> for Catalogue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Recorded {
            tools: Vec<Map<String, Value>>,
            #[serde(default)]
            left_out: Vec<LeftOut>,
        }
        let Recorded { tools, left_out } = Recorded::deserialize(from)?;
        let mut listing = Listing::default();
        for LeftOut { name, why } in left_out {
            listing.count().map_err(D::Error::custom)?;
            // A name that does not fit is recorded in part, so its duplicates cannot be found.
            if fits(&name) {
                listing.claim(&name).map_err(D::Error::custom)?;
            }
            let name = cut(&name, MAX_NAME_LEFT_OUT);
            listing.catalogue.left_out.push(LeftOut { name, why: cut(&why, MAX_WHY) });
        }
        for mut definition in tools {
            listing.count().map_err(D::Error::custom)?;
            definition.retain(|field, _| !NOT_KEPT.contains(&field.as_str()));
            let name = definition.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            listing.claim(&name).map_err(D::Error::custom)?;
            let tool = ServerTool::read(&name, definition);
            listing.put(&name, tool).map_err(D::Error::custom)?;
        }
        Ok(listing.end())
    }
}

impl ServerTool {
    /// Reads a definition without the fields that are not kept.
    ///
    /// # Errors
    /// The reason why the tool is not offered.
    fn read(name: &str, definition: Map<String, Value>) -> Result<Self, String> {
        if !fits(name) {
            return Err(format!("its name is not 1 to {MAX_NAME} letters, digits, _ and -"));
        }
        let canonical = digest::canonical(&definition).map_err(|_| invalid("it has an integer beyond 2^53"))?;
        if canonical.len() > MAX_DEFINITION_BYTES {
            return Err(too_long());
        }
        for text in ["title", "description"] {
            if definition.get(text).is_some_and(|text| !text.is_string()) {
                return Err(invalid("its title or description is no text"));
            }
        }
        let schema = definition.get("inputSchema");
        if schema.and_then(|schema| schema.get("type")).and_then(Value::as_str) != Some("object") {
            return Err(invalid("its inputSchema is not of type object"));
        }
        let tasks = definition.get("execution").and_then(|execution| execution.get("taskSupport"));
        if tasks.and_then(Value::as_str) == Some("required") {
            return Err("it runs only as a task, which is declined".to_owned());
        }
        let (digest, bytes) = (Digest::of_bytes(&canonical), canonical.len());
        Ok(Self { definition, name: name.to_owned(), digest, bytes })
    }

    /// Returns the server's own name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the definition: all that the server says of the tool but `_meta` and icons.
    #[must_use]
    pub fn definition(&self) -> &Map<String, Value> {
        &self.definition
    }

    /// Returns the digest of the definition, by which people approve it and authors pin it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest.clone()
    }

    /// Returns the bytes of the definition, as canonical JSON.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the description for models; empty without a description.
    #[must_use]
    pub fn description(&self) -> &str {
        self.definition.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the JSON Schema of the arguments of the tool, of type object.
    #[must_use]
    pub fn parameters(&self) -> JsonObject {
        JsonObject(self.definition.get("inputSchema").and_then(Value::as_object).cloned().unwrap_or_default())
    }

    /// Returns the effects that the annotations of the tool claim, or `None` if they claim no effects.
    #[must_use]
    pub fn hinted_effects(&self) -> Option<Effects> {
        let hint = |name: &str| self.definition.get("annotations")?.get(name)?.as_bool();
        match (hint("readOnlyHint"), hint("destructiveHint")) {
            (Some(true), None | Some(false)) => Some(Effects::Read),
            // Of two annotations that contradict each other, the more dangerous one counts.
            (_, Some(true)) => Some(Effects::Irreversible),
            (_, Some(false)) => Some(Effects::Write),
            (_, None) => None,
        }
    }
}

/// Returns the fields of a definition as values, or an error if they are too long to be parsed.
fn values_of(fields: &BTreeMap<String, &RawValue>) -> Result<Map<String, Value>, String> {
    let received: usize = fields.iter().map(|(field, value)| field.len() + value.get().len()).sum();
    if received > MAX_RECEIVED {
        return Err(too_long());
    }
    let mut values = Map::new();
    for (field, value) in fields {
        let value: Value = serde_json::from_str(value.get()).map_err(|_| invalid("it is nested too deeply"))?;
        values.insert(field.clone(), value);
    }
    Ok(values)
}

/// Returns the reason why a definition could be another one when the API server returns it.
fn unstable(definition: &Map<String, Value>) -> Option<&'static str> {
    fn look(value: &Value, level: usize) -> Option<&'static str> {
        if level > MAX_LEVELS {
            return Some("it is nested too deeply");
        }
        match value {
            // The API server writes a large float as an integer, and a tiny one may become another.
            Value::Number(number) => {
                let float = number.as_f64().filter(|_| number.is_f64())?;
                let is_stable = float == 0.0 || (float.is_normal() && float.abs() < TWO_TO_53);
                (!is_stable).then_some("it has a number that is too large or too small")
            }
            Value::Array(items) => items.iter().find_map(|item| look(item, level + 1)),
            Value::Object(fields) => fields.values().find_map(|field| look(field, level + 1)),
            Value::Null | Value::Bool(_) | Value::String(_) => None,
        }
    }
    definition.values().find_map(|value| look(value, 1))
}

fn invalid(why: &str) -> String {
    format!("its definition is invalid: {why}")
}

fn too_long() -> String {
    format!("its definition has more than {MAX_DEFINITION_BYTES} bytes")
}

/// Returns a name as it is shown: a name that does not fit is cut, and its special characters are escaped.
fn shown(name: &str) -> String {
    if fits(name) {
        return name.to_owned();
    }
    let beginning = name.chars().take(MAX_NAME_LEFT_OUT + 1);
    cut(&beginning.flat_map(char::escape_default).collect::<String>(), MAX_NAME_LEFT_OUT)
}

/// Shortens a text to at most `most` characters. A cut text ends with `…`.
fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;

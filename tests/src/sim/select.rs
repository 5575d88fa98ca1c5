//! Label and field selectors, and the objects that match a list or a watch. The API has no set-based field selectors.

use serde_json::Value;

use super::status::Refusal;
use super::store::{Key, Resource, Version};

/// The objects of a list, a watch or a collection deletion.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) resource: Resource,
    /// The namespace, or `None` for all.
    pub(crate) namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    subject: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Filter {
    /// Reads the two selectors of a query.
    ///
    /// # Errors
    /// 400 when a selector cannot be read.
    pub(crate) fn new(
        resource: Resource,
        namespace: Option<String>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Refusal> {
        Ok(Self { resource, namespace, labels: parse_requirements(labels)?, fields: parse_requirements(fields)? })
    }

    pub(crate) fn is_about(&self, key: &Key) -> bool {
        key.resource == self.resource && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    pub(crate) fn selects(&self, version: &Version) -> bool {
        let labels = &version.object["metadata"]["labels"];
        self.labels.iter().all(|label| label.holds(labels.get(&label.subject).and_then(Value::as_str)))
            && self.fields.iter().all(|field| {
                // A missing field equals the empty text, as in the API.
                let value = field.subject.split('.').try_fold(&version.object, |object, name| object.get(name));
                field.holds(Some(value.and_then(Value::as_str).unwrap_or_default()))
            })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        match &self.test {
            Test::In(allowed) => value.is_some_and(|value| allowed.iter().any(|allowed| allowed == value)),
            Test::NotIn(refused) => value.is_none_or(|value| refused.iter().all(|refused| refused != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
        }
    }
}

fn parse_requirements(selector: &str) -> Result<Vec<Requirement>, Refusal> {
    split_outside_parentheses(selector).into_iter().filter(|part| !part.is_empty()).map(parse_requirement).collect()
}

fn parse_requirement(text: &str) -> Result<Requirement, Refusal> {
    let requirement = |subject: &str, test| Ok(Requirement { subject: subject.trim().to_owned(), test });
    let only = |value: &str| vec![value.trim().to_owned()];
    if let Some((subject, values)) = text.split_once(" notin ") {
        return requirement(subject, Test::NotIn(parse_set(values)?));
    }
    if let Some((subject, values)) = text.split_once(" in ") {
        return requirement(subject, Test::In(parse_set(values)?));
    }
    if let Some((subject, value)) = text.split_once("!=") {
        return requirement(subject, Test::NotIn(only(value)));
    }
    if let Some((subject, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return requirement(subject, Test::In(only(value)));
    }
    match text.strip_prefix('!') {
        Some(subject) => requirement(subject, Test::Absent),
        None if text.contains(char::is_whitespace) => Err(parse_error(text)),
        None => requirement(text, Test::Exists),
    }
}

fn parse_set(text: &str) -> Result<Vec<String>, Refusal> {
    let inner =
        text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(|| parse_error(text))?;
    Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

fn parse_error(text: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement: {text}"))
}

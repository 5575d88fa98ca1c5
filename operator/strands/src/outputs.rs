//! Artifacts: the output files of a run.
//!
//! **Invariant:** no path leaves the folder to which a run writes.

use serde_json::{Map, Value, json};
use signoff_manifest::source::Node;

use super::{
    gates::scalar_text,
    import::Import,
    import_notes::NoteLevel,
    tokens::{self, Token},
};

impl Import<'_> {
    /// Returns `spec.outputs`, or `None` if no artifact can be written. Adds a note about each artifact that is left
    /// out or moved.
    pub(super) fn import_outputs(&mut self, node: &Node) -> Option<Value> {
        self.notes.read(node, "outputs", "outputs");
        let mut artifacts = Vec::new();
        for (index, artifact) in node.get("artifacts")?.items().iter().enumerate() {
            let path = format!("outputs.artifacts[{index}]");
            self.notes.read(artifact, "artifact", &path);
            let from = artifact.get("from").map(scalar_text).unwrap_or_default();
            if from.trim() == "$TRACE" {
                self.tell_at(
                    NoteLevel::Unsupported,
                    &format!("{path}.from"),
                    artifact,
                    "there is no trace to write: left out",
                );
                continue;
            }
            let original = artifact.get("path").map(scalar_text).unwrap_or_default();
            let inside = keep_inside_folder(&original);
            if inside != original.trim_start_matches("./") {
                let message = format!("files are written below the output folder: {inside}");
                self.tell_at(NoteLevel::Changed, &format!("{path}.path"), artifact, message);
            }
            let mut output = Map::from_iter([
                ("path".to_owned(), json!(self.rewrite_template(&inside))),
                ("from".to_owned(), json!(self.rewrite_template(&from))),
            ]);
            if let Some(skip_if) = self.import_skip_if(artifact, &path) {
                output.insert("skipIf".into(), skip_if.into());
            }
            let at = artifact.entry("from").map_or(artifact.at.clone(), |(key, _)| key.at.clone());
            self.tell_missing(&format!("{path}.from"), &at);
            artifacts.push(Value::Object(output));
        }
        (!artifacts.is_empty()).then(|| json!({"artifacts": artifacts}))
    }
}

/// Removes the parts of a path that could leave a folder: `..`, `.` and a leading slash. Templates are not changed.
fn keep_inside_folder(path: &str) -> String {
    let mut parts: Vec<String> = vec![String::new()];
    for token in tokens::parse_template(path) {
        match token {
            Token::Plain(text) => {
                for (index, piece) in text.split('/').enumerate() {
                    if index > 0 {
                        parts.push(String::new());
                    }
                    parts.iter_mut().last().into_iter().for_each(|part| part.push_str(piece));
                }
            }
            other => parts.iter_mut().last().into_iter().for_each(|part| part.push_str(other.text())),
        }
    }
    parts.retain(|part| !["", ".", ".."].contains(&part.as_str()));
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::keep_inside_folder;

    #[test]
    fn paths_stay_in_their_folder() {
        for (given, expected) in [
            ("./a.md", "a.md"),
            ("a/b.md", "a/b.md"),
            ("/etc/a.md", "etc/a.md"),
            ("../../a.md", "a.md"),
            ("./{{ topic | replace('/../', '-') }}.md", "{{ topic | replace('/../', '-') }}.md"),
            ("a/../b.md", "a/b.md"),
            ("a/../../b.md", "a/b.md"),
            ("a/./b.md", "a/b.md"),
            ("{{ topic }}/../a.md", "{{ topic }}/a.md"),
            ("{{ topic }}/a.md", "{{ topic }}/a.md"),
        ] {
            assert_eq!(keep_inside_folder(given), expected);
        }
    }
}

//! Artifacts: files that a run leaves behind.
//!
//! It may not let a path out of the folder that a run writes to.

use serde_json::{Map, Value, json};

use super::{gates::plain, import::Import, notes::Weight};
use crate::source::Node;

impl Import<'_> {
    /// `spec.outputs`.
    pub(super) fn outputs(&mut self, node: &Node) -> Option<Value> {
        self.notes.read(node, "outputs", "outputs");
        let mut artifacts = Vec::new();
        for (at, artifact) in node.get("artifacts")?.items().iter().enumerate() {
            let path = format!("outputs.artifacts[{at}]");
            self.notes.read(artifact, "artifact", &path);
            let from = artifact.get("from").map(plain).unwrap_or_default();
            if from.trim() == "$TRACE" {
                self.tell_at(
                    Weight::Unsupported,
                    &format!("{path}.from"),
                    artifact,
                    "there is no trace to write: left out",
                );
                continue;
            }
            let given = artifact.get("path").map(plain).unwrap_or_default();
            let inside = inside(&given);
            if inside != given.trim_start_matches("./") {
                let message = format!("files are written below the output folder: {inside}");
                self.tell_at(Weight::Changed, &format!("{path}.path"), artifact, message);
            }
            let mut made = Map::from_iter([
                ("path".to_owned(), json!(self.template(&inside))),
                ("from".to_owned(), json!(self.template(&from))),
            ]);
            if let Some(skip_if) = self.skip_if(artifact, &path) {
                made.insert("skipIf".into(), skip_if.into());
            }
            artifacts.push(Value::Object(made));
        }
        (!artifacts.is_empty()).then(|| json!({"artifacts": artifacts}))
    }
}

/// The path without what would lead out of a folder. Slashes within templates are not looked at.
fn inside(path: &str) -> String {
    if path.contains("{{") && !path.starts_with(['/', '.']) {
        return path.to_owned();
    }
    let mut rest = path;
    loop {
        let stripped = ["./", "../", "/"].iter().find_map(|start| rest.strip_prefix(start));
        match stripped {
            Some(after) => rest = after,
            None => break,
        }
    }
    if rest.contains("{{") { rest.to_owned() } else { rest.replace("/../", "/") }
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn paths_stay_in_their_folder() {
        for (given, expected) in [
            ("./a.md", "a.md"),
            ("a/b.md", "a/b.md"),
            ("/etc/a.md", "etc/a.md"),
            ("../../a.md", "a.md"),
            ("./{{ topic | replace('/../', '-') }}.md", "{{ topic | replace('/../', '-') }}.md"),
            ("a/../b.md", "a/b.md"),
            ("{{ topic }}/a.md", "{{ topic }}/a.md"),
        ] {
            assert_eq!(inside(given), expected);
        }
    }
}

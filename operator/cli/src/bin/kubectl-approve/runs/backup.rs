//! The backup of Workflows from which runs were restored: the journals of what the runs had done *(I/O)*.
//!
//! **Invariant:** nothing of a backup is sent to the API server.

use std::path::Path;

use serde_json::Value;
use signoff_api::Workflow;
use signoff_cli::{encoding::decode, sanitize::one_line};

use crate::error::Failure;

/// Reads the Workflows of a file: a list as `kubectl get workflows -o json` writes it, or one object as Velero stores
/// it.
///
/// # Errors
/// The file cannot be read, or it is not JSON with Workflows.
pub fn read(file: &Path) -> Result<Vec<Workflow>, Failure> {
    let refused =
        |why: String| Failure::Refused(format!("--backup {}: {why}", one_line(&file.display().to_string(), 512)));
    let bytes = std::fs::read(file).map_err(|error| refused(error.to_string()))?;
    decode(bytes).and_then(|text| parse(&text)).map_err(refused)
}

fn parse(text: &str) -> Result<Vec<Workflow>, String> {
    let mut object: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let items = match object["items"].take() {
        Value::Array(items) => items,
        _ => vec![object],
    };
    let workflows = items.into_iter().filter(|item| item["kind"] == "Workflow").map(serde_json::from_value);
    let workflows: Result<Vec<Workflow>, _> = workflows.collect();
    let workflows = workflows.map_err(|error| format!("not a Workflow of this version: {error}"))?;
    if workflows.is_empty() {
        return Err("it has no Workflow: give a file that `kubectl get workflows -o json` has written".to_owned());
    }
    Ok(workflows)
}

/// Returns the run in the backup from which a run was restored. Both have the same name, namespace, steps, inputs and
/// requester.
///
/// # Errors
/// There is no such run. The message completes "`<run>`: …".
pub fn find<'a>(backup: &'a [Workflow], restored: &Workflow) -> Result<&'a Workflow, String> {
    let (meta, spec) = (&restored.metadata, &restored.spec);
    let has_same_name = |old: &&Workflow| old.metadata.name == meta.name && old.metadata.namespace == meta.namespace;
    let Some(old) = backup.iter().find(has_same_name) else {
        return Err(
            "the backup has no run of this name and namespace: give the file from which it was restored".to_owned()
        );
    };
    if old.spec.steps != spec.steps || old.spec.inputs != spec.inputs || old.spec.requested_by != spec.requested_by {
        return Err(
            "the run of this name in the backup is another one: give the file from which it was restored".to_owned()
        );
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn run(name: &str, value: &str) -> Value {
        json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name, "namespace": "finance"},
            "spec": {"requestedBy": "dana", "steps": [{"name": "one", "set": {"value": value}}]}})
    }

    #[test]
    fn a_run_is_found_in_a_backup_by_its_name_and_steps() {
        let list = json!({"kind": "List", "items": [run("a", "1"), run("b", "2"), {"kind": "Approval"}]}).to_string();
        let backup = parse(&list).unwrap();
        let restored: Workflow = serde_json::from_value(run("b", "2")).unwrap();
        assert_eq!(find(&backup, &restored).unwrap().spec, restored.spec);
        let other: Workflow = serde_json::from_value(run("b", "3")).unwrap();
        assert!(find(&backup, &other).unwrap_err().contains("is another one"));
        let missing: Workflow = serde_json::from_value(run("c", "2")).unwrap();
        assert!(find(&backup, &missing).unwrap_err().contains("no run of this name"));
        assert_eq!(parse(&run("a", "1").to_string()).unwrap().len(), 1, "one object is a backup too");
    }

    #[test]
    fn a_backup_that_powershell_wrote_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.json");
        let text = format!("\u{feff}{}", run("a", "1"));
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [text.into_bytes(), utf_16] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(read(&file).unwrap().len(), 1);
        }
    }

    #[test]
    fn a_file_without_a_workflow_is_refused_with_the_remedy() {
        for text in ["{}", r#"{"kind": "List", "items": []}"#] {
            assert!(parse(text).unwrap_err().contains("kubectl get workflows -o json"), "{text}");
        }
        assert!(parse("a: b").unwrap_err().starts_with("not JSON"));
    }
}

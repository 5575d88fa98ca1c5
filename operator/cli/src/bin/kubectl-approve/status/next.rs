//! The commands that a status suggests.
//!
//! **Invariant:** no verdict is suggested before the request was read: `show` suggests verdicts.

use kube::ResourceExt;
use signoff_api::{conditions, journal::StepPhase, workflow::WorkflowPhase};

use signoff_cli::sanitize::one_line;
use signoff_review::{run::Repetition, suggest::CallFlags};

use super::fetch::RunState;

/// The most gates whose command is printed.
const MOST: usize = 5;

/// Returns the lines with the next commands for a run.
pub fn next_commands(state: &RunState, call: &CallFlags) -> String {
    let workflow = &state.workflow;
    let (name, namespace) = (workflow.name_any(), workflow.namespace().unwrap_or_default());
    let command = |words: &[&str]| call.kubectl(Some(&namespace), words);
    let status = workflow.status.clone().unwrap_or_default();
    let open: Vec<&str> = status
        .steps
        .iter()
        .filter(|record| record.phase == StepPhase::Waiting)
        .filter_map(|record| record.object.as_deref())
        .collect();
    let mut commands: Vec<String> = Vec::new();
    match status.phase {
        WorkflowPhase::Succeeded if status.outputs.is_some() => {
            commands.push(command(&["get", "workflow", &name, "-o", "jsonpath={.status.outputs}"]));
        }
        WorkflowPhase::Succeeded => commands.push(command(&["get", "workflow", &name, "-o", "yaml"])),
        phase if workflow.is_restored() => {
            let backup: &[&str] = if workflow.spec.restored == Some(true) { &["--backup", "FILE"] } else { &[] };
            commands.push(format!(
                "# after you have checked what it has done\n  {}",
                command(&[&["approve", "rerun", &name], backup].concat())
            ));
            if !phase.is_end() {
                commands.push(command(&["approve", "cancel", &name]));
            }
        }
        // A copy of a refused run would be refused again.
        phase if phase.is_end() && conditions::fails(&status.conditions, conditions::ACCEPTED) => {
            commands.push(format!("# with a corrected file\n  {}", command(&["replace", "--force", "-f", "FILE"])));
        }
        phase if phase.is_end() => {
            let repetition = Repetition::of(workflow);
            match repetition.refusal() {
                // A repetition runs every step again, so it is not suggested here.
                Some(why) => {
                    let records = command(&["get", "workflow", &name, "-o", "yaml"]);
                    commands.push(format!("# {why}\n  {records}"));
                }
                None => {
                    let warning = repetition.warning().map(|warning| format!("# {warning}\n  ")).unwrap_or_default();
                    commands.push(format!("{warning}{}", command(&["approve", "rerun", &name])));
                }
            }
        }
        phase => {
            let is_there = |gate: &&&str| state.approvals.iter().any(|approval| approval.name_any() == ***gate);
            commands.extend(open.iter().filter(is_there).take(MOST).map(|gate| command(&["approve", "show", gate])));
            if let Some(missing) = open.iter().find(|gate| !is_there(gate)) {
                // `show` would not find the Approval yet. The conditions on the page say why.
                let watch = command(&["approve", "status", &name, "--watch"]);
                commands.push(format!("# the Approval {} is not created yet\n  {watch}", one_line(missing, 253)));
            }
            if open.len() > MOST {
                commands.push(command(&["approve", "list", "--all"]));
            }
            if phase == WorkflowPhase::Suspended || workflow.spec.suspend == Some(true) {
                commands.push(command(&["approve", "resume", &name]));
            } else if open.is_empty() && workflow.status.is_some() {
                commands.push(command(&["approve", "status", &name, "--watch"]));
            } else if open.is_empty() {
                commands.push(command(&["approve", "doctor"]));
            }
        }
    }
    let lines: String = commands.iter().map(|command| format!("  {command}\n")).collect();
    format!("\nNext:\n{lines}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::args::Connection;

    fn state(spec: &Value, status: &Value) -> RunState {
        let workflow = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "refund-4711", "namespace": "finance", "uid": "u"},
            "spec": spec, "status": status,
        });
        RunState { workflow: serde_json::from_value(workflow).unwrap(), approvals: Vec::new() }
    }

    fn spec() -> Value {
        json!({"requestedBy": "dana@example.com", "steps": [{"name": "one", "set": {"value": "x"}}]})
    }

    #[test]
    fn the_next_commands_have_the_flags_of_the_call() {
        let gate = |name: &str, seq: i64| json!({"path": name, "attempt": 1, "kind": "hitl", "phase": "Waiting", "seq": seq, "object": name, "at": "2026-11-22T09:30:00Z"});
        let connection = Connection { context: Some("prod eu".into()), ..Connection::default() };
        let mut waits = state(&spec(), &json!({"phase": "Waiting", "steps": [gate("a", 1), gate("b", 2)]}));
        waits.approvals = ["a", "b"].map(approval).into();
        let expected = "\nNext:\n  kubectl approve show a -n finance --context 'prod eu'\n  kubectl approve show b -n finance --context 'prod eu'\n";
        assert_eq!(next_commands(&waits, &CallFlags::from(&connection)), expected);
        // A quota can keep the operator from creating an Approval.
        waits.approvals.truncate(1);
        let expected = "\nNext:\n  kubectl approve show a -n finance\n  # the Approval b is not created yet\n  kubectl approve status refund-4711 --watch -n finance\n";
        assert_eq!(next_commands(&waits, &CallFlags::default()), expected);
    }

    fn approval(name: &str) -> signoff_api::Approval {
        let mut approval = signoff_review::sample::approval();
        approval.metadata.name = Some(name.to_owned());
        approval
    }

    #[test]
    fn a_restored_run_is_repeated_or_cancelled() {
        let mut spec = spec();
        spec["restored"] = json!(true);
        let commands = |phase: &str| next_commands(&state(&spec, &json!({"phase": phase})), &CallFlags::default());
        let again = "\nNext:\n  # after you have checked what it has done\n  kubectl approve rerun refund-4711 --backup FILE -n finance\n";
        assert_eq!(commands("Pending"), format!("{again}  kubectl approve cancel refund-4711 -n finance\n"));
        assert_eq!(commands("Cancelled"), again);
        // A run that was restored with its status needs no backup file.
        let mut copied = state(&self::spec(), &json!({"phase": "Running", "startedAt": "2026-11-22T09:00:00Z"}));
        copied.workflow.metadata.creation_timestamp =
            Some(serde_json::from_value(json!("2026-11-22T10:00:00Z")).unwrap());
        assert!(next_commands(&copied, &CallFlags::default()).contains("kubectl approve rerun refund-4711 -n finance"));
    }

    #[test]
    fn no_repetition_of_a_run_with_an_unknown_outcome_is_suggested() {
        let steps = json!([{"name": "pay", "http": {"method": "POST", "url": "http://x/"}}]);
        let spec = json!({"requestedBy": "dana@example.com", "steps": steps});
        let commands = |phase: &str| {
            let record = json!({"path": "pay", "attempt": 1, "kind": "http", "phase": phase, "seq": 1, "at": "2026-11-22T09:30:00Z"});
            next_commands(&state(&spec, &json!({"phase": "Failed", "steps": [record]})), &CallFlags::default())
        };
        let unknown = commands("Unknown");
        assert_eq!(
            unknown,
            "\nNext:\n  # the outcome of pay is unknown: check by hand what it has done\n  kubectl get workflow refund-4711 -o yaml -n finance\n"
        );
        let done = commands("Succeeded");
        assert_eq!(
            done,
            "\nNext:\n  # every step runs again, also pay, which succeeded and must not be repeated\n  kubectl approve rerun refund-4711 -n finance\n"
        );
        assert_eq!(commands("Failed"), "\nNext:\n  kubectl approve rerun refund-4711 -n finance\n");
    }

    #[test]
    fn each_phase_has_its_next_command() {
        let commands = |phase: &str| {
            let page = next_commands(&state(&spec(), &json!({"phase": phase})), &CallFlags::default());
            page.lines().last().unwrap().trim().to_owned()
        };
        assert_eq!(commands("Running"), "kubectl approve status refund-4711 --watch -n finance");
        assert_eq!(commands("Suspended"), "kubectl approve resume refund-4711 -n finance");
        assert_eq!(commands("Failed"), "kubectl approve rerun refund-4711 -n finance");
        assert_eq!(commands("Succeeded"), "kubectl get workflow refund-4711 -o yaml -n finance");
        let refused = json!({"phase": "Failed", "conditions": [{"type": "Accepted", "status": "False", "reason": "Invalid",
            "message": "", "lastTransitionTime": "2026-11-22T09:30:00Z"}]});
        let page = next_commands(&state(&spec(), &refused), &CallFlags::default());
        assert!(page.ends_with("  # with a corrected file\n  kubectl replace --force -f FILE -n finance\n"), "{page}");
        let unread = next_commands(&state(&spec(), &Value::Null), &CallFlags::default());
        assert_eq!(unread, "\nNext:\n  kubectl approve doctor -n finance\n");
    }
}

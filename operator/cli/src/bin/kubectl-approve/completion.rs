//! Completion of commands and flags by clap, and of names, namespaces and contexts from the cluster and the kubeconfig.
//!
//! words typed so far -> clap's engine *(pure)* -> values of the current argument *(I/O)* -> candidates
//!
//! **Invariant:** completion never prints an error, because a shell would show it in the middle of a line. A failed
//! request gives no candidates.

use std::{ffi::OsString, path::Path, time::Duration};

use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, aot::Shell, engine::complete, env::Shells};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams, config::Kubeconfig};
use signoff_api::Workflow;
use signoff_cli::sanitize::one_line;
use signoff_review::seen::{Seen, sort, still_open};

use crate::{
    args::{Arguments, Connection},
    cluster::{client::Session, names},
    error::Failure,
    output,
};

/// The program's name.
const NAME: &str = "kubectl-approve";
/// The first argument that kubectl_complete-approve passes.
const COMPLETE_ARGUMENT: &str = "__complete";
/// The environment variable that the scripts of shells set to get candidates.
const VARIABLE: &str = "KUBECTL_APPROVE_COMPLETE";
/// The longest wait for the cluster's answer.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);
/// The directive of cobra for kubectl: do not complete names of files.
const NO_FILES: &str = ":4";

/// The program that kubectl runs to complete `kubectl approve`.
const PROGRAM: &str = include_str!("../../../kubectl_complete-approve");

/// Returns the candidates if kubectl asks for them, or `None` for any other command line.
pub fn answer(words: &[OsString]) -> Option<String> {
    if words.get(1).is_some_and(|word| word == COMPLETE_ARGUMENT) {
        return Some(candidates_for_kubectl(words.get(2..).unwrap_or_default()));
    }
    None
}

/// Prints the candidates if the script of a shell has called the program. Returns whether the script has called it, or
/// called it wrongly.
pub fn answer_shell(words: &[OsString]) -> bool {
    let typed = words.iter().position(|word| word == "--").and_then(|at| words.get(at + 1..)).unwrap_or_default();
    let typed = typed.get(1..).unwrap_or_default().to_vec();
    let completion = CompleteEnv::with_factory(|| command(&typed)).var(VARIABLE).bin(NAME);
    // An error must not run a command that the user did not enter.
    completion.try_complete(words.iter().cloned(), None::<&Path>).unwrap_or(true)
}

/// Returns the completion script of a shell, or without a shell the program by which kubectl completes.
///
/// # Errors
/// The shell has no completion script.
pub fn render_script(shell: Option<Shell>) -> Result<String, Failure> {
    let Some(shell) = shell else { return Ok(PROGRAM.to_owned()) };
    let shells = Shells::builtins();
    let unknown = || Failure::Usage(format!("{shell} is not known; name bash, zsh, fish or powershell"));
    let mut script = Vec::new();
    let shell = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    shell
        .write_registration(VARIABLE, NAME, NAME, NAME, &mut script)
        .map_err(|error| Failure::Other(error.to_string()))?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Returns the candidates as cobra prints them: a line each, with a tab before the description. The last line is the
/// directive.
fn candidates_for_kubectl(typed: &[OsString]) -> String {
    let words = [OsString::from(NAME)].into_iter().chain(typed.iter().cloned()).collect::<Vec<_>>();
    let current = typed.len().max(1);
    let words = if typed.is_empty() { vec![NAME.into(), OsString::new()] } else { words };
    let candidates = complete(&mut command(typed), words, current, None).unwrap_or_default();
    let render_line = |candidate: &CompletionCandidate| {
        let value = one_line(&candidate.get_value().to_string_lossy(), 512);
        match candidate.get_help() {
            Some(help) => format!("{value}\t{}\n", one_line(&help.to_string(), 120)),
            None => value + "\n",
        }
    };
    // Flags are candidates only after a hyphen; otherwise they would hide the names and commands.
    let is_flag = typed.last().is_some_and(|word| word.to_string_lossy().starts_with('-'));
    let shown = candidates.iter().filter(|candidate| {
        !candidate.is_hide_set() && (is_flag || !candidate.get_value().to_string_lossy().starts_with('-'))
    });
    shown.map(render_line).collect::<String>() + NO_FILES + "\n"
}

/// Returns the command line with completers for values from the cluster and the kubeconfig.
fn command(typed: &[OsString]) -> Command {
    add_completers(Arguments::command(), &connection(typed))
}

fn add_completers(command: Command, connection: &Connection) -> Command {
    let command = command.mut_args(|arg| {
        let is_of_runs = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "WORKFLOW"));
        let kind = match arg.get_id().as_str() {
            "name" | "names" | "run" if is_of_runs => ValueKind::Workflows,
            "name" | "names" => ValueKind::Names,
            "namespace" => ValueKind::Namespaces,
            "context" => ValueKind::Contexts,
            "output" => ValueKind::Formats,
            _ => return arg,
        };
        let connection = connection.clone();
        arg.add(ArgValueCompleter::new(move |current: &std::ffi::OsStr| {
            let current = current.to_string_lossy();
            let mut found = kind.candidates(&connection);
            found.retain(|(value, _)| value.starts_with(&*current));
            found.into_iter().map(|(value, help)| CompletionCandidate::new(value).help(help.map(Into::into))).collect()
        }))
    });
    command.mut_subcommands(|command| add_completers(command, connection))
}

/// Returns the options about the cluster and the user among the words typed so far.
fn connection(typed: &[OsString]) -> Connection {
    let words = [OsString::from(NAME)].into_iter().chain(typed.iter().cloned());
    let matches = Arguments::command().ignore_errors(true).try_get_matches_from(words);
    matches.ok().and_then(|matches| Connection::from_arg_matches(&matches).ok()).unwrap_or_default()
}

/// The kind of values that an argument has.
#[derive(Clone, Copy, Debug)]
enum ValueKind {
    /// Names of open Approvals.
    Names,
    /// Names of Workflows.
    Workflows,
    Namespaces,
    /// Contexts of the kubeconfig.
    Contexts,
    /// Formats of the output.
    Formats,
}

impl ValueKind {
    /// Returns the values with their descriptions.
    fn candidates(self, connection: &Connection) -> Vec<(String, Option<String>)> {
        match self {
            Self::Formats => output::FORMATS.map(|format| (format.to_owned(), None)).to_vec(),
            Self::Contexts => {
                let file = connection.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
                file.map(|file| file.contexts.into_iter().map(|context| (context.name, None)).collect())
                    .unwrap_or_default()
            }
            Self::Names => fetch_candidates(connection, list_approvals),
            Self::Workflows => fetch_candidates(connection, list_workflows),
            Self::Namespaces => fetch_candidates(connection, list_namespaces),
        }
    }
}

/// Returns the values that `fetch` finds in the cluster. Empty after a failure or [`CLUSTER_TIMEOUT`]. Fetches on a
/// second thread, because clap's engine is not asynchronous.
fn fetch_candidates<F>(
    connection: &Connection,
    fetch: impl FnOnce(Session) -> F + Send + 'static,
) -> Vec<(String, Option<String>)>
where
    F: Future<Output = Option<Vec<(String, Option<String>)>>>,
{
    let connection = connection.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let candidates = async { fetch(Session::open(&connection).await.ok()?).await };
            tokio::time::timeout(CLUSTER_TIMEOUT, candidates).await.ok().flatten()
        })
    });
    thread.join().ok().flatten().unwrap_or_default()
}

async fn list_approvals(session: Session) -> Option<Vec<(String, Option<String>)>> {
    let (mut open, _) = session.list(false, &still_open()).await.ok()?;
    sort(&mut open);
    let candidate = |seen: &Seen| {
        let request = &seen.approval.spec.request;
        let help = format!("{}: {}", names::address(&seen.approval), one_line(&request.prompt, 60));
        Some((seen.approval.metadata.name.clone()?, Some(one_line(&help, 120))))
    };
    Some(open.iter().filter_map(candidate).collect())
}

async fn list_workflows(session: Session) -> Option<Vec<(String, Option<String>)>> {
    list_names(Api::<Workflow>::namespaced(session.raw().clone(), &session.namespace)).await
}

async fn list_namespaces(session: Session) -> Option<Vec<(String, Option<String>)>> {
    list_names(Api::<Namespace>::all(session.raw().clone())).await
}

async fn list_names<K>(api: Api<K>) -> Option<Vec<(String, Option<String>)>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.list_metadata(&ListParams::default()).await.ok()?;
    Some(found.items.into_iter().filter_map(|item| Some((item.metadata.name?, None))).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    fn complete_line(line: &str) -> String {
        answer(&words(&format!("kubectl-approve __complete {line}"))).unwrap()
    }

    #[test]
    fn commands_and_flags_are_completed_with_their_descriptions() {
        let commands = complete_line("re");
        for line in ["reject\t", "respond\t", "retry\t"] {
            assert!(commands.lines().any(|found| found.starts_with(line)), "{commands}");
        }
        assert!(commands.ends_with("\n:4\n"), "{commands}");
        assert!(complete_line("modify --set-").contains("--set-string\t"));
        assert_eq!(complete_line("list -o js"), "json\njsonpath=\n:4\n");
        assert_eq!(complete_line("list --dry"), ":4\n");
        assert!(complete_line("list --sel").starts_with("--selector\t"));
        assert!(complete_line("approve --tu").starts_with("--turn\t"));
        let anything = complete_line("");
        assert!(anything.contains("list\t") && !anything.lines().any(|line| line.starts_with('-')), "{anything}");
        assert_eq!(answer(&words("kubectl-approve list")), None);
    }

    #[test]
    fn contexts_come_from_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let config = r#"{"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [],
            "contexts": [{"name": "prod-eu", "context": {"cluster": "a"}}, {"name": "test", "context": {"cluster": "a"}}]}"#;
        std::fs::write(&file, config).unwrap();
        let line = format!("list --kubeconfig {} --context pr", file.display());
        assert_eq!(complete_line(&line), "prod-eu\n:4\n");
    }

    #[test]
    fn an_unreachable_cluster_has_no_candidates() {
        assert_eq!(complete_line("show --kubeconfig /nonexistent/config x"), ":4\n");
    }

    #[test]
    fn the_connection_is_read_from_an_unfinished_line() {
        let found = connection(&words("--context prod approve -n finance --reason"));
        assert_eq!((found.context.as_deref(), found.namespace), (Some("prod"), vec!["finance".to_owned()]));
    }

    #[test]
    fn four_shells_and_kubectl_have_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let script = render_script(Some(shell)).unwrap();
            assert!(script.contains(NAME) && script.contains(VARIABLE), "{shell}: {script}");
        }
        let program = render_script(None).unwrap();
        assert!(program.starts_with("#!/bin/sh\n") && program.contains("exec kubectl-approve __complete \"$@\"\n"));
    }
}

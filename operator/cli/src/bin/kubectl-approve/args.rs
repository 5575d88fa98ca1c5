//! The command line: what may be typed, and nothing of what it does.
//!
//! It must not read files, the environment or the cluster.

mod decision;

pub use decision::{DecisionArgs, Payload};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::aot::Shell;
use signoff_api::Span;

use crate::output::OutputArgs;

/// List, read and decide Approvals: the questions that agent workflows ask people.
///
/// `kubectl approve NAME` shows that Approval, asks for confirmation, and approves it. On a terminal, NAME may be
/// WORKFLOW/GATE or the beginning of a name. Without NAME it lists what waits for you, to choose from.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-approve",
    bin_name = "kubectl approve",
    version,
    disable_help_subcommand = true,
    after_help = crate::exit::table()
)]
pub struct Arguments {
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub connection: Connection,
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The name of the Approval to show and approve.
    #[arg(value_parser = name)]
    pub name: Option<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Where `--help` lists what is about the cluster.
const CONNECTION: &str = "Connection";

/// As kubectl has them.
#[derive(Args, Clone, Debug, Default)]
pub struct Connection {
    /// The kubeconfig file to use instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// The context to use instead of the current one.
    #[arg(long, global = true, help_heading = CONNECTION)]
    pub context: Option<String>,
    /// The namespace to use instead of the context's; `list` takes several: -n a -n b
    #[arg(short, long, global = true, help_heading = CONNECTION)]
    pub namespace: Vec<String>,
    /// The user to act as; needs the verb impersonate.
    #[arg(long = "as", global = true, help_heading = CONNECTION, value_name = "USER")]
    pub impersonate: Option<String>,
    /// The group to act as a member of; can be given more than once.
    #[arg(long = "as-group", global = true, help_heading = CONNECTION, value_name = "GROUP", requires = "impersonate")]
    pub impersonate_group: Vec<String>,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the Approvals that wait for you
    List(List),
    /// Show an Approval with everything you need to decide it
    Show(Show),
    /// Show a run as a tree: its steps, gates, votes, deadlines and errors
    Status(StatusArgs),
    /// Show who you are in this cluster and what you can decide
    Whoami(Whoami),
    /// Check the admission policies and the operator, and what a run waits for
    ///
    /// With a NAME, or with -n alone, it also says what the run or the namespace waits for, who could decide, whether
    /// RBAC lets them, and what happens at the deadline.
    Doctor(Doctor),
    /// Continue with exactly what was shown
    Approve(Plain),
    /// Reject the request
    Reject(Plain),
    /// Continue with your own parameters instead of what was shown
    ///
    /// The parameters depend on the gate; `show` prints an example. {response} replaces the text of a step or a result,
    /// {route} a chosen route, {subtasks} the parts of divided work, {draft} a draft, {workers} the results of workers.
    /// At a gate before a step or after its failure, the parameters are fields of that step.
    Modify(Modify),
    /// Answer the questions of the gate
    Respond(Respond),
    /// Repeat the reviewed steps with your guidance, then ask again
    Defer(Defer),
    /// Ask more people
    Escalate(Escalate),
    /// End the whole run
    Abort(Plain),
    /// Skip the gate and continue
    Skip(Plain),
    /// Ask again, or run a failed step again
    ///
    /// At a gate about the results of workers, you can name the workers that run again: --set workers=[0,2]
    Retry(Parameters),
    /// Suspend runs: nothing new starts, gates can still be decided
    Suspend(Runs),
    /// Resume suspended runs
    Resume(Runs),
    /// Cancel runs: they end, and their open gates are closed
    Cancel(FinalRuns),
    /// Delete runs with their Approvals, decisions and values
    Delete(FinalRuns),
    /// Create runs again under new names, with the spec of the named ones
    Rerun(Runs),
    /// Show the versions of this plugin and of the operator in the cluster
    Version,
    /// Print the completion program for kubectl, or the completion script of a shell
    Completion(Completion),
}

/// `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The Workflow
    #[arg(value_name = "WORKFLOW", value_parser = workflow)]
    pub name: String,
    /// Print it again at every change, until the run ends
    #[arg(short, long)]
    pub watch: bool,
    /// Print every row of a long run
    #[arg(long)]
    pub all: bool,
}

/// `suspend`, `resume` and `rerun`.
#[derive(Args, Debug)]
pub struct Runs {
    /// The Workflows
    #[arg(value_name = "WORKFLOW", required = true, value_parser = workflow)]
    pub names: Vec<String>,
}

/// `cancel` and `delete`.
#[derive(Args, Debug)]
pub struct FinalRuns {
    /// The Workflows
    #[arg(value_name = "WORKFLOW", required = true, value_parser = workflow)]
    pub names: Vec<String>,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
}

/// A verb for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVerb {
    /// Nothing new starts.
    Suspend,
    /// The run continues.
    Resume,
    /// The run ends.
    Cancel,
    /// The run is removed.
    Delete,
    /// The run is created again.
    Rerun,
}

impl RunVerb {
    /// Whether the verb cannot be undone.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Cancel | Self::Delete)
    }
}

/// `list`.
#[derive(Args, Debug)]
pub struct List {
    /// List the Approvals of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// List all Approvals, including those that wait for others or are decided
    #[arg(long)]
    pub all: bool,
    /// List only Approvals with these labels, such as signoff.dev/workflow=refund-4711
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Print it again at every change, until the command is interrupted
    #[arg(short, long)]
    pub watch: bool,
}

/// `show`.
#[derive(Args, Debug)]
pub struct Show {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// Print long texts in full, and verify their digests
    #[arg(long)]
    pub full: bool,
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `whoami`.
#[derive(Args, Debug)]
pub struct Whoami {
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `completion`.
#[derive(Args, Debug)]
pub struct Completion {
    /// The shell that shall complete `kubectl-approve`; without it the program kubectl_complete-approve is printed, by which
    /// kubectl completes `kubectl approve` in every shell
    #[arg(value_enum)]
    pub shell: Option<Shell>,
}

/// `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The Workflow or Approval about which to say what it waits for
    #[arg(value_parser = named)]
    pub name: Option<Named>,
    /// List every object that was compared
    #[arg(short, long)]
    pub verbose: bool,
    /// The operator's namespace. Default: the namespace in the installed admission policies
    #[arg(long, value_name = "NAME")]
    pub operator_namespace: Option<String>,
    /// The operator's service account. Default: the name in the installed admission policies
    #[arg(long, value_name = "NAME")]
    pub operator_service_account: Option<String>,
}

/// The name of an object whose kind may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// `workflow/NAME`.
    Workflow(String),
    /// `approval/NAME`.
    Approval(String),
    /// `NAME`.
    Either(String),
}

/// The options that every decision has.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct CommonArgs {
    /// The reason, stored with the decision
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Decide on behalf of this user; needs the verb delegate for that user
    #[arg(long, value_name = "USER")]
    pub on_behalf_of: Option<String>,
    /// `server`: let the API server check the decision without storing it; `client`: print the patch and send nothing
    #[arg(long, value_name = "client|server|none", num_args = 0..=1, require_equals = true, default_missing_value = "server")]
    pub dry_run: Option<DryRun>,
    /// Skip the confirmation prompt
    #[arg(short, long)]
    pub yes: bool,
    /// How long to wait for the outcome, such as 5m; exits with 4 if there is none by then, and with 5 if it is another
    ///
    /// Without it: 2s, and the exit code is 0 as soon as the decision is recorded. Without a length: until the gate's
    /// deadline. 0s: not at all.
    #[arg(long, value_name = "LENGTH", num_args = 0..=1, require_equals = true, default_missing_value = "deadline", value_parser = wait)]
    pub wait: Option<Wait>,
}

/// The time for which a command waits for the outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until the deadline of the gate.
    UntilDeadline,
    /// At most so long.
    AtMost(std::time::Duration),
}

/// As kubectl's `--dry-run`. Without a value it is `server`: only the API server knows what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Print the patch and send nothing.
    Client,
    /// Check the decision without storing it.
    Server,
    /// Store the decision.
    None,
}

/// A decision without anything of its own.
#[derive(Args, Debug)]
pub struct Plain {
    /// The names of the Approvals; each is decided on its own, in this order
    #[arg(value_parser = name, required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `modify`.
#[derive(Args, Debug)]
pub struct Modify {
    /// The parameters.
    #[command(flatten)]
    pub parameters: Parameters,
    /// Edit the parameters in $KUBE_EDITOR or $EDITOR, see the difference, and confirm it
    #[arg(short, long, conflicts_with_all = ["set", "set_string", "from_file"])]
    pub edit: bool,
}

/// `modify` and `retry`.
#[derive(Args, Debug)]
pub struct Parameters {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// A parameter. The value is read as JSON if it is valid JSON, otherwise as text
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// A parameter whose value is always read as text
    #[arg(long, value_name = "KEY=TEXT", value_parser = pair)]
    pub set_string: Vec<(String, String)>,
    /// A JSON or YAML file with all parameters, or - for standard input; --set adds to it
    #[arg(short, long, value_name = "FILE")]
    pub from_file: Option<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `respond`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["response", "from_file", "answer", "choose"]))]
pub struct Respond {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// The answer, if the gate has one question
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from_file", "answer", "choose"])]
    pub response: Option<String>,
    /// A file with the answer, if the gate has one question, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["answer", "choose"])]
    pub from_file: Option<String>,
    /// A text that answers one of the questions; can be given more than once
    #[arg(long, value_name = "ID=TEXT", value_parser = pair)]
    pub answer: Vec<(String, String)>,
    /// An option that answers one of the questions; can be given more than once
    #[arg(long, value_name = "ID=OPTION", value_parser = pair)]
    pub choose: Vec<(String, String)>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `defer`.
#[derive(Args, Debug)]
pub struct Defer {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// What the repeated steps must do differently
    #[arg(long, value_name = "TEXT")]
    pub guidance: String,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `escalate`.
#[derive(Args, Debug)]
pub struct Escalate {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// The people to ask, among those that the gate lists: NAME, user:NAME, group:NAME or
    /// serviceaccount:NAMESPACE/NAME. Default: the next level of the gate
    #[arg(long, value_name = "WHOM")]
    pub to: Vec<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl Command {
    /// Returns the verb for runs, their names, and whether nothing is asked, if the command is such a verb.
    pub fn run_verb(&self) -> Option<(RunVerb, &[String], bool)> {
        Some(match self {
            Self::Suspend(runs) => (RunVerb::Suspend, &runs.names, true),
            Self::Resume(runs) => (RunVerb::Resume, &runs.names, true),
            Self::Rerun(runs) => (RunVerb::Rerun, &runs.names, true),
            Self::Cancel(runs) => (RunVerb::Cancel, &runs.names, runs.yes),
            Self::Delete(runs) => (RunVerb::Delete, &runs.names, runs.yes),
            _ => return None,
        })
    }
}

/// An Approval's name, also as `-o name` and kubectl write it, or `WORKFLOW/GATE`.
fn name(typed: &str) -> Result<String, String> {
    match typed.split_once('/') {
        None if typed.is_empty() => Err("the name is empty".into()),
        Some((first, rest)) if first.is_empty() || rest.is_empty() => {
            Err(format!("{typed} is not a name; write NAME, approval/NAME or WORKFLOW/GATE"))
        }
        Some(("approval" | "approvals" | "appr" | "approval.signoff.dev" | "approvals.signoff.dev", name)) => {
            Ok(name.to_owned())
        }
        _ => Ok(typed.to_owned()),
    }
}

/// A Workflow's or an Approval's name, also as `-o name` and kubectl write it.
fn named(typed: &str) -> Result<Named, String> {
    match typed.split_once('/') {
        Some(("workflow" | "workflows" | "wf" | "workflow.signoff.dev" | "workflows.signoff.dev", name))
            if !name.is_empty() =>
        {
            Ok(Named::Workflow(name.to_owned()))
        }
        Some(_) => name(typed).map(Named::Approval),
        None => name(typed).map(Named::Either),
    }
}

/// A Workflow's name, also as `-o name` and kubectl write it.
fn workflow(typed: &str) -> Result<String, String> {
    const KINDS: [&str; 5] = ["workflow", "workflows", "wf", "workflow.signoff.dev", "workflows.signoff.dev"];
    match typed.split_once('/') {
        None if typed.is_empty() => Err("the name is empty".into()),
        None => Ok(typed.to_owned()),
        Some((kind, name)) if KINDS.contains(&kind) && !name.is_empty() => Ok(name.to_owned()),
        Some((kind, _)) => Err(format!("{kind} is not workflow: write NAME or workflow/NAME")),
    }
}

fn wait(typed: &str) -> Result<Wait, String> {
    match typed {
        "deadline" => Ok(Wait::UntilDeadline),
        length => length.parse::<Span>().map(|length| Wait::AtMost(length.duration())),
    }
}

fn pair(typed: &str) -> Result<(String, String), String> {
    match typed.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("kubectl-approve").chain(line.split(' ')))
    }

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_bare_name_is_no_subcommand_and_flags_of_the_connection_go_anywhere() {
        let typed = parse("-n finance refund-1 --reason ok").unwrap();
        assert_eq!((typed.name.as_deref(), typed.common.reason.as_deref()), (Some("refund-1"), Some("ok")));
        assert!(typed.command.is_none());
        let typed = parse("--context prod list -A -n finance").unwrap();
        assert_eq!(typed.connection.namespace, ["finance"]);
        assert_eq!(typed.connection.context.as_deref(), Some("prod"));
        assert!(matches!(typed.command, Some(Command::List(List { all_namespaces: true, .. }))));
    }

    #[test]
    fn names_are_taken_as_kubectl_prints_them() {
        assert_eq!(name("approval.signoff.dev/x").unwrap(), "x");
        assert_eq!(name("x").unwrap(), "x");
        assert_eq!(name("refund-4711/all/0/review").unwrap(), "refund-4711/all/0/review");
        assert!(name("approval/").unwrap_err().contains("WORKFLOW/GATE"));
    }

    #[test]
    fn doctor_takes_a_workflow_an_approval_or_a_name() {
        assert_eq!(named("wf/x").unwrap(), Named::Workflow("x".into()));
        assert_eq!(named("approval/x").unwrap(), Named::Approval("x".into()));
        assert_eq!(named("x").unwrap(), Named::Either("x".into()));
        assert_eq!(named("refund/review").unwrap(), Named::Approval("refund/review".into()));
        assert!(named("").is_err() && named("wf/").is_err());
        let typed = parse("doctor -n finance refund --verbose").unwrap().command.unwrap();
        assert!(matches!(typed, Command::Doctor(Doctor { name: Some(_), verbose: true, .. })));
    }

    #[test]
    fn runs_are_named_as_kubectl_prints_them_and_only_final_verbs_ask() {
        assert_eq!(workflow("wf/x").unwrap(), "x");
        assert!(workflow("approval/x").unwrap_err().contains("approval is not workflow"));
        let command = parse("cancel a workflow.signoff.dev/b").unwrap().command.unwrap();
        assert_eq!(command.run_verb(), Some((RunVerb::Cancel, &["a".to_owned(), "b".to_owned()][..], false)));
        assert!(parse("suspend a -y").is_err() && parse("rerun").is_err());
        assert!(parse("status a --watch --all -n x").unwrap().command.unwrap().decisions().is_empty());
    }

    #[test]
    fn a_dry_run_is_the_servers_where_nothing_else_is_said() {
        for (line, expected) in [
            ("approve x --dry-run", DryRun::Server),
            ("approve --dry-run=none x", DryRun::None),
            ("approve --dry-run=client x", DryRun::Client),
        ] {
            assert_eq!(decisions(line)[0].common.dry_run, Some(expected), "{line}");
        }
        assert!(parse("approve --dry-run=cluster x").is_err());
    }

    fn decisions(line: &str) -> Vec<DecisionArgs> {
        parse(line).unwrap().command.unwrap().decisions()
    }

    #[test]
    fn decisions_without_a_payload_take_several_names() {
        for verb in ["approve", "reject", "abort", "skip"] {
            let decisions = decisions(&format!("{verb} a approval/b --reason ok c"));
            let names: Vec<_> = decisions.iter().map(|args| args.name.as_str()).collect();
            assert_eq!(names, ["a", "b", "c"], "{verb}");
            assert!(decisions.iter().all(|args| args.common.reason.as_deref() == Some("ok")), "{verb}");
            assert!(parse(verb).is_err(), "{verb}");
        }
        assert!(parse("modify a b --set x=y").is_err());
    }

    #[test]
    fn a_list_takes_namespaces_labels_and_formats() {
        let typed = parse("list -n a -n b -l x=y -o jsonpath={.items[*].metadata.name} --no-headers").unwrap();
        assert_eq!(typed.connection.namespace, ["a", "b"]);
        let Some(Command::List(list)) = typed.command else { unreachable!() };
        assert_eq!((list.selector.as_deref(), list.output.no_headers), (Some("x=y"), true));
        assert!(parse("list -o xml").unwrap_err().to_string().contains("write wide, name, json"));
    }

    #[test]
    fn what_is_edited_is_not_also_given() {
        assert_eq!(decisions("modify x --edit")[0].payload, Payload::Edited);
        assert!(parse("modify x --edit --set a=b").is_err());
        assert!(parse("retry x --edit").is_err());
    }

    #[test]
    fn a_wait_has_a_length_or_ends_with_the_deadline() {
        let wait = |line: &str| parse(line).map(|typed| typed.command.unwrap().decisions().remove(0).common.wait);
        assert_eq!(wait("approve x").unwrap(), None);
        assert_eq!(wait("approve x --wait").unwrap(), Some(Wait::UntilDeadline));
        let seconds = |count| Some(Wait::AtMost(std::time::Duration::from_secs(count)));
        assert_eq!(wait("approve --wait=5m x").unwrap(), seconds(300));
        assert_eq!(wait("reject x --wait=0s").unwrap(), seconds(0));
        assert!(
            wait("approve x --wait=soon").unwrap_err().to_string().contains("is not a duration like 30s, 5m or 24h")
        );
    }

    #[test]
    fn the_help_of_modify_says_what_each_kind_of_gate_takes() {
        let help = parse("modify --help").unwrap_err().to_string();
        for field in ["{response}", "{route}", "{subtasks}", "{draft}", "{workers}", "show"] {
            assert!(help.contains(field), "{help}");
        }
    }

    #[test]
    fn an_answer_is_needed_and_only_one_kind_of_it() {
        assert!(parse("respond x").is_err());
        assert!(parse("respond x --response a --answer b=c").is_err());
        assert!(parse("respond x --answer b=c --choose d=e").is_ok());
        assert!(parse("respond x --answer b").is_err());
        assert!(parse("defer x").is_err());
    }
}

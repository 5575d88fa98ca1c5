//! The command line of `kubectl approve`: its commands, arguments and options.

mod decision;
mod help;
mod run;
mod value;

pub use decision::{DecisionArgs, Payload};
pub use help::{command, did_you_mean, mistyped_message};
pub use run::{FinalRuns, Reruns, RunVerb, Runs, StatusArgs};
pub use value::{DEFAULT_WAIT, Named, WAIT_VARIABLE, WORKFLOW_KINDS, Wait, default_wait};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::aot::Shell;
use signoff_review::suggest::CallFlags;

use self::value::{parse_name, parse_named, parse_pair, parse_wait};
use crate::output::{FactsArgs, OutputArgs};

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
    after_help = crate::error::exit::table()
)]
pub struct Arguments {
    /// The cluster and the user.
    #[command(flatten)]
    pub connection: Connection,
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The name of the Approval to show and approve.
    #[arg(value_parser = parse_name)]
    pub name: Option<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The heading of the options about the cluster in `--help`.
const CONNECTION: &str = "Connection";

/// The options about the cluster and the user, as kubectl has them.
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

impl From<&Connection> for CallFlags {
    /// Returns the flags without the namespace, which is that of the suggested object.
    fn from(connection: &Connection) -> Self {
        let kubeconfig = connection.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
        let single = [
            ("--kubeconfig", kubeconfig.as_ref()),
            ("--context", connection.context.as_ref()),
            ("--as", connection.impersonate.as_ref()),
        ];
        let single = single.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        let groups = connection.impersonate_group.iter().map(|group| ("--as-group", group));
        Self::new(single.chain(groups).flat_map(|(flag, value)| [flag.to_owned(), value.clone()]).collect())
    }
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
    ///
    /// About a call of a tool: the call goes on with exactly these arguments.
    Approve(Plain),
    /// Reject the request
    ///
    /// About a call of a tool: the call does not run. The agent is told the reason, or the run ends, as `show` says.
    Reject(Plain),
    /// Continue with your own parameters instead of what was shown
    ///
    /// The parameters depend on the gate; `show` prints an example. {response} replaces the text of a step or a result,
    /// {route} a chosen route, {subtasks} the parts of divided work, {draft} a draft, {workers} the results of workers.
    /// At a gate before a step or after its failure, the parameters are fields of that step.
    ///
    /// About a call of a tool: {arguments} replaces all its arguments. The gates of the changed call ask, and you
    /// cannot approve it.
    Modify(Modify),
    /// Answer the questions of the gate
    ///
    /// About a call of a tool: the call does not run, and your answer is its result.
    Respond(Respond),
    /// Repeat the reviewed steps with your guidance, then ask again
    ///
    /// About a call of a tool: the call does not run, and the agent is told the guidance.
    Defer(Defer),
    /// Ask more people
    ///
    /// About a call of a tool: the call waits for them.
    Escalate(Escalate),
    /// End the whole run
    ///
    /// About a call of a tool: the call does not run.
    Abort(Plain),
    /// Skip the gate and continue
    ///
    /// About a call of a tool: the call does not run, and the agent continues without its result.
    Skip(Plain),
    /// Ask again, or run a failed step again
    ///
    /// At a gate about the results of workers, you can name the workers that run again: --set workers=[0,2]
    ///
    /// About a failed call of a tool: the call is made once more, after its gates.
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
    Rerun(Reruns),
    /// Show the versions of this plugin and of the operator in the cluster
    Version(FactsArgs),
    /// Print the completion program for kubectl, or the completion script of a shell
    Completion(Completion),
}

/// The option of commands whose result the inbox also has as a page.
#[derive(Args, Clone, Debug, Default)]
pub struct WebArgs {
    /// Open the page of the inbox instead, and print its address. Without URL: below the address in SIGNOFF_WEB
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub web: Option<String>,
}

/// The arguments of `list`.
#[derive(Args, Debug)]
#[command(mut_arg("web", |web| web.conflicts_with_all([
    "all", "selector", "output", "no_headers", "show_managed_fields", "watch",
])))]
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
    /// List only the pending Approvals of this Workflow, also those that wait for others; the calls of one turn of an
    /// agent together
    #[arg(long, value_name = "WORKFLOW", value_parser = value::parse_workflow, conflicts_with_all = ["all", "all_namespaces"])]
    pub run: Option<String>,
    /// The format of the output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Print it again at every change, until the command is interrupted
    #[arg(short, long)]
    pub watch: bool,
    /// The option to open the page of the inbox.
    #[command(flatten)]
    pub web: WebArgs,
}

/// The arguments of `show`.
#[derive(Args, Debug)]
#[command(mut_arg("web", |web| web.conflicts_with_all(["full", "output", "no_headers", "show_managed_fields"])))]
pub struct Show {
    /// The name of the Approval
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// Print long texts in full, and verify their digests
    #[arg(long)]
    pub full: bool,
    /// The format of the output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The option to open the page of the inbox.
    #[command(flatten)]
    pub web: WebArgs,
}

/// The arguments of `whoami`.
#[derive(Args, Debug)]
pub struct Whoami {
    /// The format of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The arguments of `completion`.
#[derive(Args, Debug)]
pub struct Completion {
    /// The shell that shall complete `kubectl-approve`; without it the program kubectl_complete-approve is printed, by
    /// which kubectl completes `kubectl approve` in every shell
    #[arg(value_enum)]
    pub shell: Option<Shell>,
}

/// The arguments of `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The Workflow or Approval about which to say what it waits for
    #[arg(value_parser = parse_named)]
    pub name: Option<Named>,
    /// List every object that was compared
    #[arg(short, long)]
    pub verbose: bool,
    /// Say how many votes an upgrade to the version of this plugin would void, and nothing else
    ///
    /// Use the plugin of the new version, before the upgrade. The exit code is 1 if a vote would be void.
    #[arg(long, conflicts_with = "name")]
    pub upgrade: bool,
    /// Send a test notice through this channel, and print the report of the operator, and nothing else
    ///
    /// Needs the verb administer on installations.signoff.dev, and pods/exec in the operator's namespace. At most one a
    /// minute. The exit code is 1 if it is not delivered.
    #[arg(long, value_name = "CHANNEL", conflicts_with_all = ["name", "upgrade"])]
    pub notify: Option<String>,
    /// With --notify: the user who gets the test notice. Default: the channel itself
    #[arg(long, value_name = "USER", requires = "notify")]
    pub notify_to: Option<String>,
    /// The format of the result for programs.
    #[command(flatten)]
    pub output: FactsArgs,
    /// The operator's namespace. Default: the namespace in the installed admission policies
    #[arg(long, value_name = "NAME")]
    pub operator_namespace: Option<String>,
    /// The operator's service account. Default: the name in the installed admission policies
    #[arg(long, value_name = "NAME")]
    pub operator_service_account: Option<String>,
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
    /// Decide the other open calls of the same turn of the agent too, after one question about all of them
    ///
    /// For approve, reject, defer, skip and abort. Every call is shown, and gets a decision of its own. If one is
    /// refused, the others are decided, and the exit code is that of the refusal.
    #[arg(long)]
    pub turn: bool,
    /// Wait this long for the outcome, such as 5m; exits with 4 without an outcome, and with 5 if another verdict was
    /// decided
    ///
    /// Without it: 2s, and the exit code is 0 as soon as the decision is recorded. Without a length: until the gate's
    /// deadline. 0s: not at all.
    #[arg(long, value_name = "LENGTH", num_args = 0..=1, require_equals = true, default_missing_value = "deadline", value_parser = parse_wait)]
    pub wait: Option<Wait>,
    /// The format of the result for programs.
    #[command(flatten)]
    pub output: FactsArgs,
}

/// The values of `--dry-run`, as kubectl has them. The default is `server`, because only the API server knows which
/// decisions it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Print the patch and send nothing.
    Client,
    /// Check the decision without storing it.
    Server,
    /// Store the decision.
    None,
}

/// The arguments of a decision without a payload: `approve`, `reject`, `abort` and `skip`.
#[derive(Args, Debug)]
pub struct Plain {
    /// The names of the Approvals; each is decided on its own, in this order
    #[arg(value_parser = parse_name, required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `modify`.
#[derive(Args, Debug)]
pub struct Modify {
    /// The parameters.
    #[command(flatten)]
    pub parameters: Parameters,
    /// Edit the parameters in $KUBE_EDITOR or $EDITOR, see the difference, and confirm it
    #[arg(short, long, conflicts_with_all = ["set", "set_string", "from_file"])]
    pub edit: bool,
}

/// The arguments of `retry`, and those of `modify` without its editor.
#[derive(Args, Debug)]
pub struct Parameters {
    /// The name of the Approval
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// A parameter. The value is read as JSON if it is valid JSON, otherwise as text
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub set: Vec<(String, String)>,
    /// A parameter whose value is always read as text
    #[arg(long, value_name = "KEY=TEXT", value_parser = parse_pair)]
    pub set_string: Vec<(String, String)>,
    /// A JSON or YAML file with all parameters, or - for standard input; --set adds to it
    #[arg(short, long, value_name = "FILE")]
    pub from_file: Option<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `respond`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["response", "from_file", "answer", "choose"]))]
pub struct Respond {
    /// The name of the Approval
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// The answer, if the gate has one question
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from_file", "answer", "choose"])]
    pub response: Option<String>,
    /// A file with the answer, if the gate has one question, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["answer", "choose"])]
    pub from_file: Option<String>,
    /// A text that answers one of the questions; can be given more than once
    #[arg(long, value_name = "ID=TEXT", value_parser = parse_pair)]
    pub answer: Vec<(String, String)>,
    /// An option that answers one of the questions; can be given more than once
    #[arg(long, value_name = "ID=OPTION", value_parser = parse_pair)]
    pub choose: Vec<(String, String)>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `defer`.
#[derive(Args, Debug)]
pub struct Defer {
    /// The name of the Approval
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// The guidance for the repeated steps
    #[arg(long, value_name = "TEXT")]
    pub guidance: String,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `escalate`.
#[derive(Args, Debug)]
pub struct Escalate {
    /// The name of the Approval
    #[arg(value_parser = parse_name)]
    pub name: String,
    /// The people to ask, among those that the gate lists: NAME, user:NAME, group:NAME or
    /// serviceaccount:NAMESPACE/NAME. Default: the next level of the gate
    #[arg(long, value_name = "WHOM")]
    pub to: Vec<String>,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
}

#[cfg(test)]
mod tests;

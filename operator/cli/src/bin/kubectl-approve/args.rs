//! The command line: what may be typed, and nothing of what it does.
//!
//! It must not read files, the environment or the cluster.

use clap::{Args, Parser, Subcommand, ValueEnum};
use signoff_api::{Span, Verdict};

/// List, read and decide Approvals: the questions that agent workflows ask people.
///
/// `kubectl approve NAME` shows that Approval, asks for confirmation, and approves it.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-approve",
    bin_name = "kubectl approve",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
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
    /// The namespace to use instead of the context's.
    #[arg(short, long, global = true, help_heading = CONNECTION)]
    pub namespace: Option<String>,
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
    /// Show who you are in this cluster and what you can decide
    Whoami,
    /// Check that the cluster verifies votes; print what differs and the remedy
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
    Modify(Parameters),
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
    /// The output format. Default: a table
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<Form>,
}

/// The forms of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// One `approval.signoff.dev/NAME` per line.
    Name,
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
}

/// `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
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
    /// Let the API server check the decision without storing it
    #[arg(long, value_name = "server|none", num_args = 0..=1, require_equals = true, default_missing_value = "server")]
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

/// As kubectl's `--dry-run`, without `client`: only the API server knows what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Check the decision without storing it.
    Server,
    /// Store the decision.
    None,
}

/// A decision without anything of its own.
#[derive(Args, Debug)]
pub struct Plain {
    /// The name of the Approval
    #[arg(value_parser = name)]
    pub name: String,
    /// The common options.
    #[command(flatten)]
    pub common: CommonArgs,
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

/// A decision as it was typed.
#[derive(Clone, Debug)]
pub struct DecisionArgs {
    /// The Approval's name.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The payload of the verdict.
    pub payload: Payload,
    /// The common options.
    pub common: CommonArgs,
}

/// The payload of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Nothing,
    /// Modify and Retry.
    Parameters {
        /// JSON where it reads as JSON.
        set: Vec<(String, String)>,
        /// Text.
        set_string: Vec<(String, String)>,
        /// A file to begin with.
        from_file: Option<String>,
    },
    /// Respond: the text of the only question.
    Response(String),
    /// Respond: a file with that text.
    ResponseFile(String),
    /// Respond: by question.
    Answers {
        /// Texts by question.
        texts: Vec<(String, String)>,
        /// Options by question.
        options: Vec<(String, String)>,
    },
    /// Defer.
    Guidance(String),
    /// Escalate.
    To(Vec<String>),
}

impl Command {
    /// The decision, if the command is one.
    pub fn decision_args(self) -> Option<DecisionArgs> {
        let plain = |verdict, plain: Plain| DecisionArgs {
            name: plain.name,
            verdict,
            payload: Payload::Nothing,
            common: plain.common,
        };
        Some(match self {
            Self::List(_) | Self::Show(_) | Self::Whoami | Self::Doctor(_) => return None,
            Self::Approve(typed) => plain(Verdict::Approve, typed),
            Self::Reject(typed) => plain(Verdict::Reject, typed),
            Self::Abort(typed) => plain(Verdict::Abort, typed),
            Self::Skip(typed) => plain(Verdict::Skip, typed),
            Self::Modify(typed) => typed.decision_args(Verdict::Modify),
            Self::Retry(typed) => typed.decision_args(Verdict::Retry),
            Self::Respond(typed) => {
                let payload = match (typed.response, typed.from_file) {
                    (Some(text), _) => Payload::Response(text),
                    (None, Some(file)) => Payload::ResponseFile(file),
                    (None, None) => Payload::Answers { texts: typed.answer, options: typed.choose },
                };
                DecisionArgs { name: typed.name, verdict: Verdict::Respond, payload, common: typed.common }
            }
            Self::Defer(typed) => DecisionArgs {
                name: typed.name,
                verdict: Verdict::Defer,
                payload: Payload::Guidance(typed.guidance),
                common: typed.common,
            },
            Self::Escalate(typed) => DecisionArgs {
                name: typed.name,
                verdict: Verdict::Escalate,
                payload: Payload::To(typed.to),
                common: typed.common,
            },
        })
    }
}

impl Parameters {
    fn decision_args(self, verdict: Verdict) -> DecisionArgs {
        let payload = Payload::Parameters { set: self.set, set_string: self.set_string, from_file: self.from_file };
        DecisionArgs { name: self.name, verdict, payload, common: self.common }
    }
}

/// An Approval's name, also as `-o name` and kubectl write it.
fn name(typed: &str) -> Result<String, String> {
    match typed.split_once('/') {
        None if typed.is_empty() => Err("the name is empty".into()),
        None => Ok(typed.to_owned()),
        Some(("approval" | "approvals" | "appr" | "approval.signoff.dev" | "approvals.signoff.dev", name))
            if !name.is_empty() =>
        {
            Ok(name.to_owned())
        }
        Some((kind, _)) => Err(format!("{kind} is not approval: write NAME or approval/NAME")),
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
        assert_eq!(typed.connection.namespace.as_deref(), Some("finance"));
        assert_eq!(typed.connection.context.as_deref(), Some("prod"));
        assert!(matches!(typed.command, Some(Command::List(List { all_namespaces: true, .. }))));
    }

    #[test]
    fn names_are_taken_as_kubectl_prints_them() {
        assert_eq!(name("approval.signoff.dev/x").unwrap(), "x");
        assert_eq!(name("x").unwrap(), "x");
        assert!(name("pod/x").unwrap_err().contains("pod is not approval"));
    }

    #[test]
    fn a_dry_run_is_the_servers() {
        let typed = parse("approve x --dry-run").unwrap().command.unwrap().decision_args().unwrap();
        assert_eq!(typed.common.dry_run, Some(DryRun::Server));
        let typed = parse("approve --dry-run=none x").unwrap().command.unwrap().decision_args().unwrap();
        assert_eq!(typed.common.dry_run, Some(DryRun::None));
        assert!(parse("approve --dry-run=client x").is_err());
    }

    #[test]
    fn a_wait_has_a_length_or_ends_with_the_deadline() {
        let wait = |line: &str| parse(line).map(|typed| typed.command.unwrap().decision_args().unwrap().common.wait);
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

//! `signoff run`: runs a Workflow on this machine, or continues a paused run.

mod commands;
pub mod output;
mod source;
mod terminal_handler;

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{ArgGroup, Args, ValueEnum};
use signoff_api::{Approval, Decision, JsonObject, Verdict};
use signoff_cli::{sanitize::one_line, terminal};
use signoff_engine::Settings;
use signoff_executor::{Evaluator, EvaluatorSettings};
use signoff_local::{Error, Local, LocalSecrets, Run, RunOutcome, Sessions, Stop};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    answer::{self, Answers, GivenAnswer, person::Editing},
    exit::Exit,
    texts::{self, display_path},
};
use signoff_expr::nearest::did_you_mean;
use terminal_handler::TerminalHandler;

/// The heading of the options about answers in `--help`.
const ANSWERS: &str = "Answers";

/// The default timeout of a gate in front of a call, if there is a person at the terminal.
const TERMINAL_GATE_TIMEOUT: Duration = Duration::from_secs(300);

/// The environment variable with the folder of sessions.
const SESSIONS: &str = "SIGNOFF_SESSIONS_DIR";

/// Run a Workflow on this machine, without a cluster. The run pauses at a gate without an answer (exit code 19);
/// --resume continues it.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct RunArguments {
    /// The file of the Workflow (YAML or JSON), or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "resume", conflicts_with = "resume")]
    file: Option<PathBuf>,
    /// Continue a paused session
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    /// The value of an input, read as the input's type; can be given more than once
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "resume", value_parser = parse_pair)]
    var: Vec<(String, String)>,
    /// A YAML or JSON file with the values of inputs; --var overrides it
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    vars_file: Option<PathBuf>,
    /// Write the artifacts of the run below this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace existing files below --out
    #[arg(long, requires = "out")]
    force: bool,
    /// The format of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write all decisions to this file, as JSON
    #[arg(long, value_name = "FILE")]
    export_hitl_history: Option<PathBuf>,
    /// The folder of Secrets: a subfolder for each Secret, with a file for each key. Without it, each key is the
    /// environment variable SIGNOFF_SECRET_<NAME>_<KEY>. The key allowed-hosts lists the hosts that the Secret can be
    /// sent to
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// Start the servers of the Workflow that are commands. Each command is confirmed once on the terminal
    #[arg(long)]
    allow_commands: bool,
    /// Confirm the command with this digest, where there is no terminal; can be given more than once
    #[arg(long, value_name = "DIGEST", requires = "allow_commands")]
    confirm_command: Vec<String>,
    /// The folder of sessions
    #[command(flatten)]
    pub place: Place,
    /// Answers to gates.
    #[command(flatten)]
    answer: Answer,
}

// The options for a pending gate need a session. They conflict with FILE instead of requiring --resume, because clap
// does not require an option that conflicts with a given argument.
/// Answers to gates.
#[derive(Args, Debug, Default)]
#[command(group = ArgGroup::new("given").args(["hitl_response", "verdict"]).multiple(true))]
struct Answer {
    /// Ask on the terminal. Default, if there is a terminal
    #[arg(long, help_heading = ANSWERS, overrides_with = "no_interactive")]
    interactive: bool,
    /// Pause at gates instead of asking
    #[arg(long, help_heading = ANSWERS)]
    no_interactive: bool,
    /// The answer at the pending gate: the word for an allowed verdict, or a text
    #[arg(long, help_heading = ANSWERS, value_name = "TEXT", conflicts_with_all = ["file", "answers"])]
    hitl_response: Option<String>,
    /// The verdict at the pending gate: approve, reject, modify, respond, defer, escalate, abort, skip or retry
    #[arg(long, help_heading = ANSWERS, conflicts_with_all = ["file", "answers"], value_parser = answer::parse_verdict)]
    verdict: Option<Verdict>,
    /// The reason for the decision
    #[arg(long, help_heading = ANSWERS, value_name = "TEXT", requires = "given", conflicts_with = "file")]
    reason: Option<String>,
    /// The changed parameters, for modify and retry: an object in YAML or JSON
    #[arg(long, help_heading = ANSWERS, value_name = "OBJECT", requires = "verdict", conflicts_with = "file", value_parser = parse_parameters)]
    parameters: Option<JsonObject>,
    /// The guidance, for defer
    #[arg(long, help_heading = ANSWERS, value_name = "TEXT", requires = "verdict", conflicts_with = "file")]
    guidance: Option<String>,
    /// The pending gate to answer, if there are several: its name, its path or its Approval
    #[arg(long, help_heading = ANSWERS, value_name = "NAME", requires = "given", conflicts_with = "file")]
    gate: Option<String>,
    /// A YAML or JSON file with an answer for each gate
    #[arg(long, help_heading = ANSWERS, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// The user who decides; the name is not verified. Default: the user of this process
    #[arg(long = "as", help_heading = ANSWERS, value_name = "USER")]
    decider: Option<String>,
}

/// The option for the folder of sessions.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The folder of sessions. Default: signoff/sessions in XDG_STATE_HOME or ~/.local/state
    #[arg(long, env = SESSIONS, value_name = "DIR")]
    pub sessions_dir: Option<PathBuf>,
}

/// The output format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

const HELP: &str = "\
Answers in a file (--answers), each used once:
  review: approve                        a word, or the text of an answer
  review#2: {verdict: Reject, reason: too long}
  plan: {verdict: Modify, parameters: {route: billing}}
  city: [{response: Lisbon}, {response: Porto}]    the first and the second time it asks

Ctrl-C pauses the run after the calls that must not be repeated; --resume repeats all other calls.";

/// Starts or resumes a run, and prints its result.
pub async fn run(options: RunArguments) -> anyhow::Result<Exit> {
    let sessions = Sessions::new(options.place.folder()?);
    let user = whoami::username().context("finding out who runs this")?;
    let editing = Editing::default();
    let decider = options.answer.decider.clone().unwrap_or_else(|| user.clone());
    let secrets = options.secrets_dir.clone().map(LocalSecrets::in_folder).unwrap_or_default();
    let local = Local::with_secrets(sessions.clone(), &user, secrets)?.decider(&decider);
    let (workflow, warned) = match &options.file {
        Some(file) => {
            let settings = Settings { allow_commands: options.allow_commands, ..Settings::default() };
            let read = source::read_workflow(file, &user, &settings, &options.var, options.vars_file.as_deref())?;
            (Some(read.workflow), read.warned)
        }
        None => (None, Vec::new()),
    };
    let asks = options.answer.asks();
    let terminal_handler =
        TerminalHandler::new(&decider, read_answers(&options.answer)?, asks.then(|| Arc::clone(&editing)));
    let evaluator = Evaluator::start(EvaluatorSettings::default()).context("starting threads")?;
    let mut local = local.handler(Arc::clone(&terminal_handler)).evaluator(evaluator);
    if asks {
        local = local.call_gate_timeout(TERMINAL_GATE_TIMEOUT);
    }
    if options.allow_commands {
        let stored = options.resume.as_ref().map(|id| read_session(&sessions, id)).transpose()?;
        let run_workflow = workflow.as_ref().or(stored.as_ref().map(|session| &session.workflow));
        let given = &options.confirm_command;
        let confirmed = run_workflow
            .map(|workflow| commands::confirm_commands(&workflow.spec, &sessions, given, asks))
            .transpose()?;
        local = local.commands(confirmed.unwrap_or_default());
    }

    let mut run = match (workflow, &options.resume) {
        (Some(workflow), _) => local.begin(workflow).map_err(failure)?,
        (None, Some(id)) => local.resume(id).await.map_err(failure)?,
        (None, None) => return Err(Exit::Usage.because("name a FILE, or a session with --resume")),
    };
    // Before this, a signal ends the process, because the run has not started.
    pause_on_signals(local.stop(), Arc::clone(&editing))?;
    if options.resume.is_some()
        && let Some(given) = options.answer.given_answer()
    {
        give_answer(&run, options.answer.gate.as_deref(), given, &terminal_handler)?;
    }
    if options.resume.is_none() {
        terminal::note(&format!("session {}", run.id()));
    }
    // Warnings about the file were already shown with their lines.
    let further = run.warnings().iter().filter(|warning| !warned.contains(warning));
    further.for_each(|warning| terminal::note(&format!("warning: {}", one_line(warning, 1000))));

    let ended = run.go().await;
    // The editor of a gate whose deadline has passed can still be open and would hide the output.
    drop(editing.lock().await);
    let ended = ended.map_err(failure)?;
    let snapshot = run.snapshot();
    // Dropping the run ends its servers that are commands.
    drop(run);
    local.settled().await;
    let exported = match &options.export_hitl_history {
        Some(file) => output::export_history(file, &snapshot),
        None => Ok(()),
    };
    let place = options.place.named_folder();
    let written = output::write_artifacts(&sessions, &snapshot, place, options.out.as_deref(), options.force).await;
    let written_files = written.as_ref().map_or(&[][..], Vec::as_slice);
    let report = output::RunReport {
        snapshot: &snapshot,
        sessions: place,
        secrets: options.secrets_dir.as_deref(),
        decider: &user,
        artifacts: written_files,
    };
    terminal::print(&output::render_result(&sessions, &report, options.format).await?)?;
    terminal_handler.list_unused().iter().for_each(|why| terminal::note(why));
    let unwritten: Vec<_> = [written.map(drop), exported].into_iter().filter_map(Result::err).collect();
    unwritten.iter().for_each(|why| terminal::note(&format!("{why:#}")));
    Ok(match ended {
        RunOutcome::Over(end) => unwritten.first().map_or_else(|| output::exit_code(end.phase()), Exit::of),
        // A paused run has priority over a failed export, which can be repeated when the run is over. A refused answer
        // was meant for this gate.
        RunOutcome::Paused if terminal_handler.was_refused() => Exit::Usage,
        RunOutcome::Paused => Exit::Paused,
    })
}

impl Place {
    /// Returns the folder if suggested commands must name it, because the environment does not.
    pub fn named_folder(&self) -> Option<&Path> {
        let of_environment = env::var_os(SESSIONS).map(PathBuf::from);
        self.sessions_dir.as_deref().filter(|folder| of_environment.as_deref() != Some(folder))
    }

    /// Returns the folder of sessions.
    ///
    /// # Errors
    /// No folder is given, and HOME is not set.
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = || variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
        self.sessions_dir
            .clone()
            .or_else(|| Some(state()?.join("signoff/sessions")))
            .ok_or_else(|| Exit::Usage.because("HOME is not set: say where sessions are with --sessions-dir"))
    }
}

impl Answer {
    fn asks(&self) -> bool {
        self.interactive || (!self.no_interactive && terminal::is_stdin_terminal() && terminal::is_stderr_terminal())
    }

    /// Returns the answer that the options give, if any.
    fn given_answer(&self) -> Option<GivenAnswer> {
        let reason = self.reason.clone();
        match (self.verdict, &self.hitl_response) {
            (None, None) => None,
            (None, Some(text)) => Some(GivenAnswer::Text { text: text.clone(), reason }),
            (Some(verdict), response) => Some(GivenAnswer::Decision(Box::new(Decision {
                reason,
                response: response.clone(),
                parameters: self.parameters.clone(),
                guidance: self.guidance.clone(),
                ..Decision::new(verdict)
            }))),
        }
    }
}

/// Reads the file of `--answers`. Without the option there are no answers.
fn read_answers(options: &Answer) -> anyhow::Result<Answers> {
    let Some(file) = &options.answers else { return Ok(Answers::default()) };
    let name = display_path(file);
    let text = texts::read_file(file).map_err(|why| Exit::Usage.because(format!("{name}: {why}")))?;
    Answers::of_file(&name, &text).map_err(|why| Exit::Usage.because(format!("{name}: {}", one_line(&why, 2000))))
}

/// Gives the answer of the command line to the pending gate that it is for. If no gate is pending any more, prints that
/// the answer is not used.
///
/// # Errors
/// The answer fits no pending gate or several, or the gate cannot take it.
fn give_answer(
    run: &Run,
    gate: Option<&str>,
    given: GivenAnswer,
    terminal_handler: &TerminalHandler,
) -> anyhow::Result<()> {
    let pending = run.pending();
    let is_named = |approval: &&&Approval| {
        let pending_gate = &approval.spec.request.gate;
        gate.is_none_or(|gate| {
            [pending_gate.name.as_str(), &pending_gate.path, approval.metadata.name.as_deref().unwrap_or_default()]
                .contains(&gate)
        })
    };
    let open: Vec<_> = pending.iter().filter(is_named).collect();
    let names = || pending.iter().map(|approval| gate_label(approval)).collect::<Vec<_>>().join(", ");
    match (open.as_slice(), gate) {
        ([only], _) => {
            let name = only.metadata.name.clone().unwrap_or_default();
            // An answer that this gate cannot take is an error before the run continues.
            given.clone().decision(&only.spec.request).map_err(|why| Exit::Usage.because(one_line(&why, 1000)))?;
            terminal_handler.give(Answers::single(&name, given));
            Ok(())
        }
        ([], _) if pending.is_empty() => {
            terminal::note("no gate is pending (time may have decided it): the answer is not used");
            Ok(())
        }
        ([], Some(gate)) => {
            let known = pending.iter().flat_map(|approval| {
                let pending_gate = &approval.spec.request.gate;
                [pending_gate.path.as_str(), &pending_gate.name]
            });
            let hint = did_you_mean(gate, known);
            let message = format!("no pending gate is called {gate}: there are {}{hint}", names());
            Err(Exit::Usage.because(one_line(&message, 2000)))
        }
        _ => Err(Exit::Usage.because(format!("several gates are pending: say which with --gate ({})", names()))),
    }
}

/// Returns a gate's path, with its name if that differs: `.final (release)`.
fn gate_label(approval: &Approval) -> String {
    let gate = &approval.spec.request.gate;
    match gate.path == gate.name {
        true => one_line(&gate.path, 512),
        false => format!("{} ({})", one_line(&gate.path, 512), one_line(&gate.name, 63)),
    }
}

/// Returns the error of a session with its exit code.
pub fn failure(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::Invalid(_) => Exit::Invalid,
        Error::NeedsCluster { .. } | Error::Command { .. } | Error::Unconfirmed { .. } => Exit::Unsupported,
        Error::Evaluation { .. } => Exit::Failed,
        Error::Bug { .. } => Exit::Unexpected,
        _ => Exit::Session,
    };
    exit.because(error.to_string())
}

/// Pauses the run at SIGINT (ctrl-C), SIGTERM and SIGHUP. After a second signal, the pause does not wait for calls.
fn pause_on_signals(stop: Stop, editing: Editing) -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                // While an editor is open, ctrl-C is for the editor.
                Some(()) = interrupt.recv() => if editing.try_lock().is_ok() { stop.ask() },
                Some(()) = terminate.recv() => stop.ask(),
                Some(()) = hang_up.recv() => stop.ask(),
            }
        }
    });
    Ok(())
}

fn parse_pair(typed: &str) -> Result<(String, String), String> {
    match typed.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".into()),
    }
}

fn parse_parameters(typed: &str) -> Result<JsonObject, String> {
    answer::parse_object(typed)
}

/// Reads the snapshot of a session, for commands that do not change it.
pub fn read_session(sessions: &Sessions, id: &str) -> anyhow::Result<signoff_local::Snapshot> {
    sessions.read(id).map_err(failure)
}

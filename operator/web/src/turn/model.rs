//! The pages of requests that are decided together: the cards of the requests and one verdict on the chosen ones, the
//! confirmation, and the outcomes.
//!
//! Pure.
//!
//! **Invariant:** a verdict that no request takes is not offered.

use std::collections::BTreeSet;

use askama::Template;
use signoff_api::{ApprovalRequest, ApprovalStatus, Verdict};
use signoff_engine::approval::eligibility::allowed_verdicts;
use signoff_expr::text::display;
use signoff_review::{
    action::{self, NOTICE, SAYS},
    reading::Verified,
    request::{CONTEXT, warnings},
    suggest::CallFlags,
    text::one_line,
};

use super::{
    batch::{About, Batch, CallOutcome, chosen_requests},
    bond::Bond,
    card::RequestCard,
    read::Together,
};
use crate::{
    approval::{
        model::{ASKS_TITLE, LONGEST, path, target},
        typed::{FormField, Problems, Typed},
    },
    page::Shell,
    scope::is_name,
    session::Caller,
};

/// The requests that are chosen when the page is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstChoice {
    /// All requests that the reader can decide.
    All,
    /// No request, because another site or person may have made the address.
    Nothing,
}

/// The page of requests that are decided together.
#[derive(Template)]
#[template(path = "turn.html")]
pub struct TurnPage {
    shell: Shell,
    heading: TurnHeading,
    warnings: Vec<(&'static str, String)>,
    problem: Option<String>,
    cards: Vec<RequestCard>,
    rest: RestOfTurn,
    form: TogetherForm,
}

/// The run and the turn of the requests.
struct TurnHeading {
    /// Whether the requests are calls of one turn.
    is_turn: bool,
    /// The word for a request: `call` or `request`.
    noun: &'static str,
    namespace: String,
    workflow: String,
    /// The path of the turn in the journal.
    turn: String,
}

/// The calls of the turn that are not open, and the words of its agent.
struct RestOfTurn {
    /// The other calls of the turn, which run without a decision or are decided.
    others: Vec<String>,
    /// The earlier calls of the run.
    done: Vec<String>,
    /// The agent's own words.
    says: Option<String>,
}

/// The form of the verdict.
struct TogetherForm {
    /// The address that takes the verdict.
    action: String,
    /// The request that stood first when the page was opened. It stays the same when the form is shown again.
    first: String,
    /// The key under which the browser stores the draft of this page.
    draft: String,
    verdicts: Vec<Button>,
    reason: FormField,
    reason_required: bool,
    guidance: Option<FormField>,
    /// Whether no request is chosen because no page of this inbox led here.
    is_unchosen: bool,
}

/// The button of a verdict.
struct Button {
    verdict: &'static str,
    label: &'static str,
    class: &'static str,
    hint: String,
}

impl TurnPage {
    /// Returns the page for a reader who sent nothing before.
    pub fn opened(caller: &Caller, together: &Together, choice: FirstChoice) -> Self {
        let chosen = match choice {
            FirstChoice::All => None,
            FirstChoice::Nothing => Some(BTreeSet::new()),
        };
        let page = Self::new(caller, together, &Typed::default(), &Problems::default(), chosen.as_ref());
        let is_unchosen = choice == FirstChoice::Nothing && !page.form.verdicts.is_empty();
        Self { form: TogetherForm { is_unchosen, ..page.form }, ..page }
    }

    /// Returns the page for a reader with the form that they sent, and its problems.
    pub fn again(caller: &Caller, together: &Together, typed: &Typed, problems: &Problems) -> Self {
        let chosen = chosen_requests(typed).into_iter().map(|(name, _)| name).collect();
        Self::new(caller, together, typed, problems, Some(&chosen))
    }

    /// Returns the page with the chosen requests. `chosen`: their names, or `None` for all.
    fn new(
        caller: &Caller,
        together: &Together,
        typed: &Typed,
        problems: &Problems,
        chosen: Option<&BTreeSet<&str>>,
    ) -> Self {
        let numbered = (1..).zip(&together.calls);
        let cards: Vec<_> =
            numbered.map(|(position, read)| RequestCard::of(caller, together, read, position, chosen)).collect();
        let decidable = together.calls.iter().zip(&cards).filter(|(_, card)| card.eligibility.can_decide);
        let decidable: Vec<_> = decidable.filter_map(|(read, _)| read.verified().ok()).collect();
        let heading = TurnHeading::of(together);
        Self {
            shell: heading.shell(caller),
            warnings: run_warnings(together),
            problem: problems.of_page(),
            rest: RestOfTurn::of(together),
            form: TogetherForm::of(together, &decidable, typed, problems),
            heading,
            cards,
        }
    }
}

impl TurnHeading {
    fn of(together: &Together) -> Self {
        let first = requests(together).next();
        let path_of_turn = first.and_then(|request| action::turn_of(&request.gate.path)).map(|(path, _)| path);
        Self {
            is_turn: matches!(together.bond, Bond::Turn(_)),
            noun: together.bond.noun(),
            namespace: together.namespace.clone(),
            workflow: first.map(|request| request.workflow.name.clone()).unwrap_or_default(),
            turn: one_line(path_of_turn.unwrap_or_default(), 512),
        }
    }

    /// Returns the shell of the page, with the command that lists the same requests.
    fn shell(&self, caller: &Caller) -> Shell {
        let title = match self.is_turn {
            true => format!("A turn of {}", self.workflow),
            false => "Requests of equal gates".to_owned(),
        };
        let mut shell = Shell::of(caller, &title, "inbox");
        let run = if self.workflow.is_empty() { "RUN" } else { self.workflow.as_str() };
        let words = if self.is_turn { vec!["approve", "list", "--run", run] } else { vec!["approve", "list"] };
        shell.command = Some(CallFlags::default().kubectl(Some(&self.namespace), &words));
        shell
    }
}

impl RestOfTurn {
    fn of(together: &Together) -> Self {
        let is_turn = matches!(together.bond, Bond::Turn(_));
        let action = requests(together).next().and_then(|request| request.action.as_ref());
        // The agent's words belong to the turn, so they are the same for each call. For requests of several runs, the
        // page of each request has the words of its agent.
        let says: BTreeSet<_> = requests(together).filter(|_| is_turn).filter_map(action::says).collect();
        let says: Vec<_> = says.into_iter().collect();
        Self {
            others: if is_turn { other_calls(together) } else { Vec::new() },
            done: action.map(earlier_calls).unwrap_or_default(),
            says: (!says.is_empty()).then(|| display(&says.join("\n\n"), LONGEST)),
        }
    }
}

impl TogetherForm {
    /// Returns the form of a verdict on the requests that the reader can decide.
    fn of(together: &Together, decidable: &[Verified<'_>], typed: &Typed, problems: &Problems) -> Self {
        let bond = &together.bond;
        let field =
            |name: &str| FormField { value: typed.text(name).unwrap_or_default(), problem: problems.at(name).cloned() };
        let verdicts = buttons(bond, decidable);
        let has_defer = verdicts.iter().any(|button| button.verdict == Verdict::Defer.name());
        let first_name = together.calls.first().and_then(|read| read.seen.approval.metadata.name.as_deref());
        let first = first_shown(typed, first_name.unwrap_or_default()).to_owned();
        Self {
            action: bond.action(&together.namespace),
            draft: bond.draft(&first),
            first,
            verdicts,
            reason: field("reason"),
            reason_required: decidable
                .iter()
                .any(|verified| verified.seen().approval.spec.request.require_reason == Some(true)),
            guidance: has_defer.then(|| field("guidance")),
            is_unchosen: false,
        }
    }
}

fn requests(together: &Together) -> impl Iterator<Item = &ApprovalRequest> {
    together.calls.iter().map(|read| &read.seen.approval.spec.request)
}

/// Returns the warnings of the conditions of the runs, each once.
fn run_warnings(together: &Together) -> Vec<(&'static str, String)> {
    let conditions = together.runs().flat_map(|run| run.conditions.clone()).collect();
    let mut warnings = warnings(&ApprovalStatus { conditions, ..ApprovalStatus::default() });
    warnings.sort();
    warnings.dedup();
    warnings
}

/// Returns the name of the request that stood first when the page was opened: the name in the form, or `otherwise`.
fn first_shown<'t>(typed: &'t Typed, otherwise: &'t str) -> &'t str {
    typed.get("first").filter(|name| is_name(name)).unwrap_or(otherwise)
}

/// Returns a button for each verdict that at least one request takes. A hint names the requests that do not take it.
fn buttons(bond: &Bond, decidable: &[Verified<'_>]) -> Vec<Button> {
    let takes = |verified: &Verified<'_>, verdict| {
        let approval = &verified.seen().approval;
        let status = approval.status.clone().unwrap_or_default();
        allowed_verdicts(&approval.spec.request, &status).contains(&verdict)
    };
    let button = |verdict: Verdict| {
        let others: Vec<_> = decidable
            .iter()
            .filter(|verified| !takes(verified, verdict))
            .map(|verified| target(&verified.seen().approval.spec.request))
            .collect();
        let count = decidable.len() - others.len();
        let (label, class) = match verdict {
            Verdict::Approve => ("Approve", "main"),
            Verdict::Reject => ("Reject", "danger"),
            Verdict::Abort => ("Abort the run", "danger"),
            other => (other.name(), ""),
        };
        let hint = match (verdict, others.is_empty()) {
            (_, false) => format!("not allowed for {}", others.join("; ")),
            (Verdict::Defer, true) => "needs guidance".to_owned(),
            (_, true) => String::new(),
        };
        (count > 0).then(|| Button { verdict: verdict.name(), label, class, hint })
    };
    bond.verdicts().iter().copied().filter_map(button).collect()
}

/// Returns the calls of the turn that are not open, as `TOOL (call NUMBER)`. The open requests name them.
fn other_calls(turn: &Together) -> Vec<String> {
    let open: BTreeSet<_> = requests(turn).filter_map(|request| action::turn_of(&request.gate.path)).collect();
    let mut calls: Vec<_> = requests(turn)
        .filter_map(|request| request.action.as_ref())
        .flat_map(|action| &action.siblings)
        .filter_map(|call| {
            let (path, number) = action::turn_of(&call.path)?;
            (!open.contains(&(path, number))).then(|| (number, one_line(&call.tool, 64)))
        })
        .collect();
    calls.sort();
    calls.dedup();
    calls.into_iter().map(|(number, tool)| format!("{tool} (call {number})")).collect()
}

/// Returns the calls that the run made before, one line each.
fn earlier_calls(action: &signoff_api::approval::Action) -> Vec<String> {
    action.done.iter().map(|call| one_line(call, 256)).collect()
}

/// The page that shows a verdict on several requests before it is sent.
#[derive(Template)]
#[template(path = "turn_confirm.html")]
pub struct ConfirmTogether {
    shell: Shell,
    action: String,
    back: String,
    verdict: &'static str,
    noun: &'static str,
    class: &'static str,
    heading: String,
    calls: Vec<ConfirmedCall>,
    reason: Option<String>,
    guidance: Option<String>,
    /// Whether guidance was typed that this verdict does not send.
    leaves_guidance: bool,
    fields: Vec<(String, String)>,
}

/// A call as its confirmation shows it.
struct ConfirmedCall {
    target: String,
    about: About,
    digest: String,
    comes_to: Option<String>,
    not_sent: String,
}

impl ConfirmTogether {
    /// Returns the page with the fields of the form, and with the name of each entry that would be sent.
    pub fn of(caller: &Caller, batch: &Batch<'_>, typed: &Typed) -> Self {
        let verdict = batch.verdict;
        let calls = batch.calls.iter().map(|call| ConfirmedCall {
            target: call.target.clone(),
            about: call.about.clone(),
            digest: call.digest.clone(),
            comes_to: call.planned.as_ref().ok().map(|planned| planned.comes_to.clone()),
            not_sent: call.planned.as_ref().err().cloned().unwrap_or_default(),
        });
        let filled = |name: &str| typed.text(name).filter(|text| !text.trim().is_empty());
        let mut fields: Vec<_> = ["verdict", "reason", "guidance", "first"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), typed.get(name)?.to_owned())))
            .collect();
        for call in &batch.calls {
            if let Ok(planned) = &call.planned {
                fields.push(("call".to_owned(), format!("{} {}", call.name, call.digest)));
                fields.push(("confirmed".to_owned(), format!("{} {}", call.name, planned.fingerprint())));
            }
        }
        let sent = batch.calls.iter().filter(|call| call.planned.is_ok()).count();
        let heading = format!("{verdict}: {sent} of {}?", batch.bond.counted(batch.calls.len()));
        Self {
            shell: Shell::of(caller, &format!("Confirm {verdict}"), "inbox"),
            action: batch.bond.action(batch.namespace),
            back: batch.page(),
            verdict: verdict.name(),
            noun: batch.bond.noun(),
            class: if verdict.stops() { "danger" } else { "main" },
            heading,
            calls: calls.collect(),
            reason: filled("reason").map(|text| display(&text, LONGEST)),
            leaves_guidance: verdict != Verdict::Defer && filled("guidance").is_some(),
            guidance: filled("guidance").filter(|_| verdict == Verdict::Defer).map(|text| display(&text, LONGEST)),
            fields,
        }
    }
}

/// The page with the outcome of each call.
#[derive(Template)]
#[template(path = "turn_result.html")]
pub struct Results {
    shell: Shell,
    is_turn: bool,
    noun: &'static str,
    back: String,
    heading: String,
    all_recorded: bool,
    calls: Vec<CallResult>,
    draft: String,
}

/// The outcome of one call.
struct CallResult {
    target: String,
    about: About,
    path: String,
    digest: String,
    is_recorded: bool,
    line: String,
}

impl Results {
    /// Returns the page. `outcomes`: the outcomes of the calls of the batch, in the same order.
    pub fn of(caller: &Caller, batch: &Batch<'_>, typed: &Typed, outcomes: Vec<CallOutcome>) -> Self {
        let recorded = outcomes.iter().filter(|outcome| outcome.is_recorded).count();
        let calls: Vec<_> = batch
            .calls
            .iter()
            .zip(outcomes)
            .map(|(call, outcome)| CallResult {
                target: call.target.clone(),
                about: call.about.clone(),
                path: path(batch.namespace, &call.name),
                digest: call.digest.clone(),
                is_recorded: outcome.is_recorded,
                line: display(&outcome.line, 4096),
            })
            .collect();
        let heading = format!("{}: {recorded} of {} recorded", batch.verdict, batch.bond.counted(calls.len()));
        let first = batch.calls.first().map(|call| call.name.as_str()).unwrap_or_default();
        let first = first_shown(typed, first);
        Self {
            shell: Shell::of(caller, &heading, "inbox"),
            is_turn: matches!(batch.bond, Bond::Turn(_)),
            noun: batch.bond.noun(),
            back: batch.page(),
            all_recorded: recorded == calls.len(),
            draft: if recorded > 0 { batch.bond.draft(first) } else { String::new() },
            heading,
            calls,
        }
    }
}

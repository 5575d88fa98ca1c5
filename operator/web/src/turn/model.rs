//! The pages of requests that are decided together: each with its facts and texts, then the words of others,
//! and one verdict for those that are chosen.
//!
//! Pure. It must not offer a verdict that no call takes, nor choose a call that the reader cannot decide.

use std::collections::BTreeSet;

use askama::Template;
use signoff_api::Verdict;
use signoff_engine::approval::eligibility::{allowed_verdicts, ineligible};
use signoff_expr::text::display;
use signoff_review::{
    action::{self, Fact, SAYS},
    coming,
    reading::Verified,
    request::{CONTEXT, warnings},
    suggest::CallFlags,
    text::one_line,
};

use super::{
    batch::{About, Batch, CallOutcome, chosen},
    bond::Bond,
    read::Together,
};
use crate::{
    approval::{
        model::{ASKS_TITLE, LONGEST, path, target},
        read::Read,
        texts::{AskedQuestion, Text, context, questions, sent, subject},
        typed::{Problems, Typed},
    },
    page::Shell,
    scope::is_name,
    session::Caller,
};

/// The requests that are chosen where nothing was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstChoice {
    /// All that the reader can decide.
    All,
    /// None: another site or person gave the address.
    Nothing,
}

/// The page of requests that are decided together.
#[derive(Template)]
#[template(path = "turn.html")]
pub struct TurnPage {
    shell: Shell,
    is_turn: bool,
    noun: &'static str,
    action: String,
    namespace: String,
    workflow: String,
    /// The path of the turn in the journal.
    turn: String,
    warnings: Vec<(&'static str, String)>,
    problem: Option<String>,
    cards: Vec<Card>,
    /// The other calls of the turn: they run without a decision, or are decided.
    others: Vec<String>,
    done: Vec<String>,
    verdicts: Vec<Button>,
    says: Option<String>,
    says_title: &'static str,
    notice: &'static str,
    asks_title: &'static str,
    context_title: &'static str,
    reason: Field,
    guidance: Option<Field>,
    reason_required: bool,
    /// Whether nothing is chosen because of where the reader comes from.
    is_unchosen: bool,
    /// Names the drafts of this page: the request that stood first when it was opened, and the whole name.
    first: String,
    draft: String,
}

/// One request.
struct Card {
    /// The number of the call in the turn, or of the request on the page.
    number: u32,
    title: String,
    name: String,
    path: String,
    gate: String,
    digest: String,
    /// The digests of its texts, each with its heading.
    digests: Vec<(String, String)>,
    /// Whether the request and its whole texts have the digests that it names.
    is_unchanged: bool,
    /// The reason why this request cannot or must not be decided: a heading and a sentence.
    broken: Option<(&'static str, String)>,
    /// Whether the reader can decide it.
    can_decide: bool,
    is_chosen: bool,
    /// Why the reader cannot decide it, or must not.
    cannot: Option<String>,
    before: Vec<Fact>,
    subject: Option<Text>,
    sent: Option<Text>,
    after: Vec<Fact>,
    is_question: bool,
    questions: Vec<AskedQuestion>,
    context: Option<Text>,
    prompt: String,
    /// The label of the prompt.
    label: &'static str,
}

/// The button of a verdict.
struct Button {
    verdict: &'static str,
    label: &'static str,
    class: &'static str,
    hint: String,
}

/// The text of a field, and what is wrong with it.
struct Field {
    value: String,
    problem: Option<String>,
}

impl TurnPage {
    /// Returns the page for a reader who sent nothing before.
    pub fn opened(caller: &Caller, together: &Together, choice: FirstChoice) -> Self {
        let chosen = match choice {
            FirstChoice::All => None,
            FirstChoice::Nothing => Some(BTreeSet::new()),
        };
        let page = Self::new(caller, together, &Typed::default(), &Problems::default(), chosen.as_ref());
        Self { is_unchosen: choice == FirstChoice::Nothing && !page.verdicts.is_empty(), ..page }
    }

    /// Returns the page for a reader with what they sent, and what was wrong with it.
    pub fn again(caller: &Caller, together: &Together, typed: &Typed, problems: &Problems) -> Self {
        let chosen = chosen(typed).into_iter().map(|(name, _)| name).collect();
        Self::new(caller, together, typed, problems, Some(&chosen))
    }

    /// `chosen`: the names of the chosen requests, or `None` for all.
    fn new(
        caller: &Caller,
        together: &Together,
        typed: &Typed,
        problems: &Problems,
        chosen: Option<&BTreeSet<&str>>,
    ) -> Self {
        let bond = &together.bond;
        let cards: Vec<_> =
            (1..).zip(&together.calls).map(|(position, read)| card(caller, together, read, position, chosen)).collect();
        let requests = || together.calls.iter().map(|read| &read.seen.approval.spec.request);
        let first = requests().next();
        let path_of_turn = first.and_then(|one| action::turn_of(&one.gate.path)).map(|(path, _)| path);
        let workflow = first.map(|one| one.workflow.name.clone()).unwrap_or_default();
        let decidable = together.calls.iter().zip(&cards).filter(|(_, card)| card.can_decide);
        let decidable: Vec<_> = decidable.filter_map(|(read, _)| read.verified().ok()).collect();
        let field =
            |name: &str| Field { value: typed.text(name).unwrap_or_default(), problem: problems.at(name).cloned() };
        let verdicts = buttons(bond, &decidable);
        let has_defer = verdicts.iter().any(|button| button.verdict == Verdict::Defer.name());
        let is_turn = matches!(bond, Bond::Turn(_));
        let title = if is_turn { format!("A turn of {workflow}") } else { "Requests of equal gates".to_owned() };
        let mut shell = Shell::of(caller, &title, "inbox");
        let run = if workflow.is_empty() { "RUN" } else { workflow.as_str() };
        let words = if is_turn { vec!["approve", "list", "--run", run] } else { vec!["approve", "list"] };
        shell.command = Some(CallFlags::default().kubectl(Some(&together.namespace), &words));
        let conditions = together.runs().flat_map(|run| run.conditions.clone()).collect();
        let conditions = signoff_api::ApprovalStatus { conditions, ..signoff_api::ApprovalStatus::default() };
        let mut warnings = warnings(&conditions);
        warnings.sort();
        warnings.dedup();
        // The words of the agent are of its turn: the same beside each call. Other runs have theirs on their pages.
        let says: BTreeSet<_> = requests().filter(|_| is_turn).filter_map(action::says).collect();
        let first_name = together.calls.first().and_then(|read| read.seen.approval.metadata.name.as_deref());
        let first_shown = first_shown(typed, first_name.unwrap_or_default()).to_owned();
        Self {
            shell,
            is_turn,
            noun: bond.noun(),
            action: bond.action(&together.namespace),
            namespace: together.namespace.clone(),
            workflow,
            turn: one_line(path_of_turn.unwrap_or_default(), 512),
            warnings,
            problem: problems.of_page(),
            cards,
            others: if is_turn { others(together) } else { Vec::new() },
            done: first.and_then(|one| one.action.as_ref()).map(done).unwrap_or_default(),
            says: (!says.is_empty()).then(|| display(&says.into_iter().collect::<Vec<_>>().join("\n\n"), LONGEST)),
            says_title: SAYS,
            notice: action::NOTICE,
            asks_title: ASKS_TITLE,
            context_title: CONTEXT,
            reason: field("reason"),
            guidance: has_defer.then(|| field("guidance")),
            reason_required: decidable.iter().any(|one| one.seen().approval.spec.request.require_reason == Some(true)),
            is_unchosen: false,
            draft: bond.draft(&first_shown),
            first: first_shown,
            verdicts,
        }
    }
}

/// Returns the name of the request that stood first when the page was opened, by which its drafts are named: as the
/// form says it, or else this one.
fn first_shown<'t>(typed: &'t Typed, otherwise: &'t str) -> &'t str {
    typed.get("first").filter(|name| is_name(name)).unwrap_or(otherwise)
}

fn card(caller: &Caller, together: &Together, read: &Read, position: u32, chosen: Option<&BTreeSet<&str>>) -> Card {
    let approval = &read.seen.approval;
    let request = &approval.spec.request;
    let name = approval.metadata.name.clone().unwrap_or_default();
    let problem = read.verified().err();
    let ineligible = ineligible(approval, &caller.me.voter(), read.at);
    // Readers who cannot decide anyway are told only what is wrong with the request itself.
    let shown = problem.as_ref().filter(|problem| problem.is_of_request() || ineligible.is_none());
    let broken = shown.map(|problem| (problem.heading(), problem.to_string()));
    let stranger = || together.strangers.contains(&name).then(|| together.bond.stranger().to_owned());
    let cannot = ineligible.map(|why| one_line(&why.to_string(), 1000)).or_else(stranger);
    let can_decide = broken.is_none() && cannot.is_none();
    let action = request.action.as_ref();
    let is_question = action::is_question(request);
    let number = action::turn_of(&request.gate.path).filter(|_| together.bond != Bond::Equal);
    let (subject, sent) = (subject(request, &read.whole), sent(request, &read.whole));
    Card {
        number: number.map_or(position, |(_, number)| number),
        title: together.bond.target(request).unwrap_or_else(|| target(request)),
        path: path(&together.namespace, &name),
        gate: one_line(&request.gate.path, 512),
        digest: request.digest.to_string(),
        digests: subject.iter().chain(&sent).map(|text| (text.title.clone(), text.digest.clone())).collect(),
        is_unchanged: read.seen.digest_holds() && read.whole.is_ok(),
        can_decide,
        is_chosen: can_decide && chosen.is_none_or(|chosen| chosen.contains(name.as_str())),
        broken,
        cannot,
        before: action.map(action::facts_before).unwrap_or_default(),
        subject,
        sent,
        after: action::facts_of_call(request),
        is_question,
        questions: if is_question { questions(request) } else { Vec::new() },
        context: context(request, &read.whole),
        prompt: display(action::authors_words(request), LONGEST),
        label: coming::label_of_question(request, coming::definition(request, &read.run)),
        name,
    }
}

/// The verdicts that at least one request takes, each with those that do not take it.
fn buttons(bond: &Bond, decidable: &[Verified<'_>]) -> Vec<Button> {
    let takes = |one: &Verified<'_>, verdict| {
        let approval = &one.seen().approval;
        let status = approval.status.clone().unwrap_or_default();
        allowed_verdicts(&approval.spec.request, &status).contains(&verdict)
    };
    let one = |verdict: Verdict| {
        let others: Vec<_> = decidable
            .iter()
            .filter(|one| !takes(one, verdict))
            .map(|one| target(&one.seen().approval.spec.request))
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
    bond.verdicts().iter().copied().filter_map(one).collect()
}

/// The calls of the turn that do not wait, as the requests of the others name them.
fn others(turn: &Together) -> Vec<String> {
    let requests = || turn.calls.iter().map(|read| &read.seen.approval.spec.request);
    let waits: BTreeSet<_> = requests().filter_map(|one| action::turn_of(&one.gate.path)).collect();
    let mut found: Vec<_> = requests()
        .filter_map(|one| one.action.as_ref())
        .flat_map(|action| &action.siblings)
        .filter_map(|call| {
            let (path, number) = action::turn_of(&call.path)?;
            (!waits.contains(&(path, number))).then(|| (number, one_line(&call.tool, 64)))
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().map(|(number, tool)| format!("{tool} (call {number})")).collect()
}

fn done(action: &signoff_api::approval::Action) -> Vec<String> {
    action.done.iter().map(|one| one_line(one, 256)).collect()
}

/// The page that shows a verdict on several requests once more.
#[derive(Template)]
#[template(path = "turn_confirm.html")]
pub struct Confirm {
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

impl Confirm {
    /// Returns the page. It repeats the fields of the calls that would be sent, and names each entry.
    pub fn of(caller: &Caller, batch: &Batch<'_>, typed: &Typed) -> Self {
        let verdict = batch.verdict;
        let calls = batch.calls.iter().map(|call| ConfirmedCall {
            target: call.target.clone(),
            about: call.about.clone(),
            digest: call.digest.clone(),
            comes_to: call.planned.as_ref().ok().map(|planned| planned.comes_to.clone()),
            not_sent: call.planned.as_ref().err().cloned().unwrap_or_default(),
        });
        let said = |name: &str| typed.text(name).filter(|text| !text.trim().is_empty());
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
            reason: said("reason").map(|text| display(&text, LONGEST)),
            leaves_guidance: verdict != Verdict::Defer && said("guidance").is_some(),
            guidance: said("guidance").filter(|_| verdict == Verdict::Defer).map(|text| display(&text, LONGEST)),
            fields,
        }
    }
}

/// The page that tells the outcome of each call.
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
    /// Returns the page. `outcomes`: of each call of the batch, in its order.
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

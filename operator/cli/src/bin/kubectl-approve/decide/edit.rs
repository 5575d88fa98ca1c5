//! `modify --edit`: the parameters in the user's editor until they are valid, then the difference and a question.
//!
//! fetch *(I/O)* -> check gate and user *(pure)* -> reason *(I/O)* -> parameters as YAML *(pure)* -> editor *(I/O)* ->
//! check as the operator checks *(pure)* -> difference -> rehearse *(I/O)* -> question -> record *(I/O)*
//!
//! **Invariant:** an edited text is deleted only after its decision is stored.

use std::io;

use serde_json::{Map, Value};
use signoff_api::{Approval, ApprovalRequest, Code, Moment, Verdict};
use signoff_cli::{
    editor::EditedFile,
    sanitize::{fence, hides, one_line},
    terminal,
};
use signoff_engine::{
    approval::eligibility::{Voter, ineligible},
    gate::parameters,
};
use similar::TextDiff;

use signoff_expr::number;
use signoff_manifest::source;
use signoff_review::{
    action, clock,
    edit::{changed_only, parameters_to_edit},
    entry::Entry,
    outcome,
    seen::Seen,
    voter::Me,
    whole,
};

use super::{
    decision::{self, Prepared, Reading, Sent},
    dialog, payload, refusals,
};
use crate::{
    args::{DecisionArgs, DryRun, Payload},
    cluster::client::Session,
    error::Failure,
};

/// The variables that name the editor, as for `kubectl edit`.
const VARIABLES: [&str; 2] = ["KUBE_EDITOR", "EDITOR"];
/// The longest difference that is shown, in characters.
const LONGEST: usize = 20_000;

/// Records the decision with the parameters that the user edits. After a failure or a dry run, keeps the edited text,
/// and prints the path and the command that sends it.
///
/// # Errors
/// A request fails, there is no terminal, the text is unchanged, or the user did not confirm the difference.
pub async fn edit_and_decide(session: &Session, mut args: DecisionArgs) -> Result<Sent, Failure> {
    if !terminal::can_ask() {
        return Err(Failure::Usage("--edit needs a terminal; use --set or --from-file".to_owned()));
    }
    let reading = Reading::fetch(session, &args.name).await?;
    reading.verified()?;
    let (seen, me) = (&reading.seen, &reading.me);
    if let Some((why, code)) = find_refusal(&seen.approval, &args, me, clock::now()) {
        let failure = Failure::refused(why.trim_end_matches(':').to_owned(), Some(code));
        return Err(refusals::explain(session, &args, me, failure).await);
    }
    let request = &seen.approval.spec.request;
    let Some(schema) = parameters::schema(request, args.verdict) else {
        return Err(Failure::Refused(format!(
            "this gate has no parameters for {}; give another verdict",
            args.verdict
        )));
    };
    let reviewed = fetch_reviewed_text(session, &seen.approval).await?;
    let before = parameters_to_edit(&schema, reviewed.as_deref());
    let before = if action::call(request).is_some() { as_json(before)? } else { as_yaml(before)? };
    dialog::ask_missing(&mut args, request)?;
    let file = EditedFile::create("parameters.yaml")
        .map_err(|error| Failure::Other(format!("a file for the editor cannot be created: {error}; set TMPDIR")))?;
    let sent = match edit_until_valid(&file, &args, seen, me, &render_header(request, &args, &schema), &before) {
        Ok((after, edited)) => confirm_and_store(session, &reading, &file, &edited, [&before, &after]).await,
        Err(failure) => Err(failure),
    };
    let is_dry = args.common.dry_run.is_some_and(|dry_run| dry_run != DryRun::None);
    if (sent.is_err() || is_dry) && is_changed(&file.text(), &before) {
        let path = file.keep();
        terminal::note(&format!("The edited parameters are kept in {}", path.display()));
        terminal::note(&format!("To send them: {}", send_command(session, &args, &path.to_string_lossy())));
    }
    sent
}

/// Fetches the whole reviewed text, with which an edit begins, or `None` if the request has none.
async fn fetch_reviewed_text(session: &Session, approval: &Approval) -> Result<Option<String>, Failure> {
    let request = &approval.spec.request;
    let whole = if whole::is_edit_cut(request) { Some(session.fetch_whole_texts(approval).await?) } else { None };
    Ok(whole::to_edit(request, whole.as_ref()).map(str::to_owned))
}

/// Renders the difference between the arguments of a call and the arguments that its Modify sends instead. `None` for
/// any other decision.
///
/// # Errors
/// The whole arguments cannot be read.
pub async fn render_difference(session: &Session, seen: &Seen, entry: &Entry) -> Result<Option<String>, Failure> {
    let request = &seen.approval.spec.request;
    let schema = parameters::schema(request, entry.decision.verdict).filter(|_| action::call(request).is_some());
    let (Some(schema), Some(after)) = (schema, &entry.decision.parameters) else { return Ok(None) };
    let before = parameters_to_edit(&schema, fetch_reviewed_text(session, &seen.approval).await?.as_deref());
    let json = |parameters: &Map<String, Value>| crate::output::json(&Value::Object(parameters.clone()));
    Ok(Some(fence(&line_difference(&json(&before)?, &json(&parameters::as_object(after).0)?), LONGEST)))
}

/// Returns why this user cannot give this verdict now, or `None`.
fn find_refusal(approval: &Approval, args: &DecisionArgs, me: &Me, now: Moment) -> Option<(String, Code)> {
    let voter = Voter { on_behalf_of: args.common.on_behalf_of.as_deref(), ..me.voter() };
    let reason = ineligible(approval, &voter, now).map(|reason| (reason.to_string(), reason.code()));
    reason.or_else(|| Some((refusals::open_gate(approval, args.verdict, now)?, Code::VERDICT)))
}

/// Shows the difference, rehearses the decision with the edited parameters, asks for confirmation, and records it.
async fn confirm_and_store(
    session: &Session,
    reading: &Reading,
    file: &EditedFile,
    edited: &DecisionArgs,
    [before, after]: [&str; 2],
) -> Result<Sent, Failure> {
    let approval = &reading.seen.approval;
    terminal::note(&decision::render_summary(approval));
    terminal::note(&fence(&line_difference(before, after), LONGEST));
    let (args, rehearsed) = match decision::prepare(session, edited, reading, false).await? {
        Prepared::Ready(args, rehearsed) => (args, rehearsed),
        Prepared::Sent(sent) => return Ok(sent),
    };
    if let Some(warning) = outcome::after_edit(approval, rehearsed.entry()) {
        terminal::note(&format!("Note: {warning}"));
    }
    if !args.common.yes {
        terminal::note(&format!("Until it is sent, your text is in {}", file.path().display()));
    }
    let question = format!("Send {} with this change as {}?", args.verdict, one_line(&reading.me.user, 253));
    if !args.common.yes && !terminal::ask(&question).map_err(|error| Failure::Other(error.to_string()))? {
        return Err(Failure::Declined);
    }
    decision::store(session, *args, *rehearsed).await
}

/// Whether the user has changed the text of the file.
fn is_changed(page: &io::Result<String>, before: &str) -> bool {
    match page {
        Ok(page) => {
            let text = strip_comments(page);
            !text.trim().is_empty() && text != before
        }
        // Bytes that are not UTF-8 were written by the user too.
        Err(error) => error.kind() == io::ErrorKind::InvalidData,
    }
}

/// Returns the command that sends the parameters of a kept file.
fn send_command(session: &Session, args: &DecisionArgs, path: &str) -> String {
    let verdict = args.verdict.name().to_lowercase();
    let mut words = ["approve", &*verdict, &*args.name, "--from-file", path].map(str::to_owned).to_vec();
    // Option and value are one word, because clap would read a value that begins with a hyphen as an option.
    words.extend(args.common.reason.iter().map(|reason| format!("--reason={reason}")));
    words.extend(args.common.on_behalf_of.iter().map(|user| format!("--on-behalf-of={user}")));
    session.call.kubectl(Some(&session.namespace), &words)
}

/// Opens the editor until the parameters are valid, each time with the problem above the text, as `kubectl edit` does.
fn edit_until_valid(
    file: &EditedFile,
    args: &DecisionArgs,
    seen: &Seen,
    me: &Me,
    header: &str,
    before: &str,
) -> Result<(String, DecisionArgs), Failure> {
    let (mut text, mut problem) = (before.to_owned(), String::new());
    loop {
        let page = format!("{header}{}#\n{text}", comment(&problem));
        let edited = file.edit(&page, &VARIABLES);
        let edited =
            edited.map_err(|error| Failure::Other(format!("the editor cannot be run: {error}; set EDITOR")))?;
        let Some(edited) = edited.map(|edited| strip_comments(&edited)) else { return Err(Failure::Declined) };
        if edited.trim().is_empty() || edited == before {
            terminal::note("the parameters were not changed");
            return Err(Failure::Declined);
        }
        match parse_edited(args, &keep_changed(&seen.approval.spec.request, args.verdict, before, &edited), seen, me) {
            Ok(decision) => return Ok((edited, decision)),
            // The user saved the invalid text again, and so gave up.
            Err(failure) if edited == text => return Err(failure),
            Err(failure) => (text, problem) = (edited, failure.to_string()),
        }
    }
}

/// Returns only the changed parameters if the gate keeps the others as they are; otherwise all of them.
fn keep_changed(request: &ApprovalRequest, verdict: Verdict, before: &str, edited: &str) -> String {
    let parse = |text: &str| match source::typed(text, false) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    };
    let changed_fields = || {
        let schema = parameters::schema(request, verdict)?;
        let edited = parse(edited)?;
        let changed = changed_only(&schema, &parse(before)?, edited.clone());
        if changed == edited { None } else { as_yaml(changed).ok() }
    };
    changed_fields().unwrap_or_else(|| edited.to_owned())
}

/// Returns the decision with these parameters, if the operator can use them.
fn parse_edited(args: &DecisionArgs, text: &str, seen: &Seen, me: &Me) -> Result<DecisionArgs, Failure> {
    let value =
        source::typed(text, false).map_err(|why| Failure::Usage(format!("not YAML: {}", one_line(&why, 300))))?;
    if let Some(why) = number::problem(&value) {
        return Err(Failure::Usage(why));
    }
    let Value::Object(fields) = value else {
        return Err(Failure::Usage("the parameters must be an object; write NAME: VALUE".to_owned()));
    };
    let set = fields.into_iter().map(|(name, value)| (name, value.to_string())).collect();
    let payload = Payload::Parameters { set, set_string: Vec::new(), from_file: None };
    let decision = DecisionArgs { payload, ..args.clone() };
    decision::check_usable(&seen.approval, &payload::build_entry(&decision, None, &seen.approval, me)?, clock::now())?;
    Ok(decision)
}

/// Returns the arguments of a call as JSON, as they were shown. Fails if YAML would not read them as the same value.
fn as_json(parameters: Map<String, Value>) -> Result<String, Failure> {
    let value = Value::Object(parameters);
    let json = crate::output::json(&value)?;
    match serde_saphyr::from_str::<Value>(&json) {
        Ok(read) if read == value => Ok(json),
        _ => Err(Failure::Other(
            "the arguments cannot be edited here: YAML does not read them as the same; use --from-file".to_owned(),
        )),
    }
}

fn as_yaml(parameters: Map<String, Value>) -> Result<String, Failure> {
    let value = Value::Object(parameters);
    let yaml = serde_saphyr::to_string(&value).map_err(|error| Failure::Other(error.to_string()))?;
    // An editor would show hidden characters of YAML's plain and block styles. JSON is YAML too, and escapes them.
    if hides(&yaml) { crate::output::json(&value) } else { Ok(yaml) }
}

fn render_header(request: &ApprovalRequest, args: &DecisionArgs, schema: &Value) -> String {
    let lines = format!(
        "{} of {}, gate {}\nIt takes {}\nLines above the parameters that begin with # are left out. An unchanged or empty file decides nothing.",
        args.verdict,
        one_line(&args.name, 253),
        one_line(&request.gate.path, 200),
        one_line(&parameters::shape(schema), 1000),
    );
    comment(&lines)
}

fn comment(text: &str) -> String {
    text.lines().map(|line| format!("# {}\n", one_line(line, 1000))).collect()
}

/// Returns the text without the lines of comments above it.
fn strip_comments(page: &str) -> String {
    let body = page.split_inclusive('\n').skip_while(|line| line.starts_with('#'));
    body.collect()
}

fn line_difference(before: &str, after: &str) -> String {
    let difference = TextDiff::from_lines(before, after);
    difference.unified_diff().context_radius(3).header("shown", "yours").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use signoff_api::{Verdict, approval::ApprovalPhase};
    use signoff_review::sample;

    use super::*;
    use crate::args::CommonArgs;

    fn args() -> DecisionArgs {
        DecisionArgs {
            name: "refund-1".into(),
            verdict: Verdict::Modify,
            payload: Payload::Edited,
            common: CommonArgs::default(),
        }
    }

    #[test]
    fn an_edit_begins_with_the_reviewed_text_or_an_example() {
        let object_with =
            |field: &str, schema: Value| json!({"type": "object", "required": [field], "properties": {field: schema}});
        let call = json!({"type": "object", "properties": {"url": {"type": "string"}, "body": {"type": "string"}}});
        for (schema, reviewed, expected) in [
            (object_with("response", json!({})), "Dear ACME", json!({"response": "Dear ACME"})),
            (object_with("response", json!({})), "{\"a\": 1}", json!({"response": {"a": 1}})),
            (object_with("response", json!({})), "420", json!({"response": "420"})),
            (object_with("draft", json!({"type": "string"})), "[1]", json!({"draft": "[1]"})),
            (
                object_with("subtasks", json!({"type": "array"})),
                "[{\"task\": \"a\"}]",
                json!({"subtasks": [{"task": "a"}]}),
            ),
            (object_with("route", json!({"enum": ["billing", "support"]})), "support", json!({"route": "support"})),
            (object_with("route", json!({"enum": ["billing", "support"]})), "neither", json!({"route": "billing"})),
            (call.clone(), "Once, 2 retries.\nurl: https://a\nmethod: GET\n", json!({"url": "https://a"})),
            (call, "connection refused", json!({"url": "better"})),
        ] {
            assert_eq!(Value::Object(parameters_to_edit(&schema, Some(reviewed))), expected, "{schema}");
        }
        assert_eq!(
            Value::Object(parameters_to_edit(&object_with("response", json!({})), None)),
            json!({"response": "better"})
        );
    }

    #[test]
    fn valid_parameters_become_the_decision_and_others_are_refused() {
        let approval = sample::approval();
        let seen = Seen { raw: serde_json::to_value(&approval).unwrap(), approval };
        let me = sample::me("alice@example.com", &["finance"]);
        let decision = parse_edited(&args(), "response: |\n  Dear ACME,\n  420\n", &seen, &me).unwrap();
        let entry = payload::build_entry(&decision, None, &seen.approval, &me).unwrap();
        assert_eq!(Value::Object(entry.decision.parameters.unwrap().0), json!({"response": "Dear ACME,\n420\n"}));
        for (text, why) in [("respnse: x", "response"), ("response: [", "not YAML"), ("- a", "must be an object")] {
            let failure = parse_edited(&args(), text, &seen, &me).unwrap_err().to_string();
            assert!(failure.contains(why), "{text}: {failure}");
        }
    }

    #[test]
    fn arguments_of_a_call_are_edited_as_they_were_shown_and_checked_against_its_schema() {
        let approval = sample::call();
        let request = &approval.spec.request;
        let schema = parameters::schema(request, Verdict::Modify).unwrap();
        let before = as_json(parameters_to_edit(&schema, Some(sample::ARGUMENTS))).unwrap();
        assert_eq!(
            before,
            "{\n  \"arguments\": {\n    \"amount\": 420,\n    \"customer\": \"ACME\",\n    \"note\": \"as agreed\\\\nby phone\"\n  }\n}\n"
        );
        let seen = Seen { raw: serde_json::to_value(&approval).unwrap(), approval: approval.clone() };
        let me = sample::me("alice@example.com", &["finance"]);
        let decision = parse_edited(&args(), &before.replace("420", "42"), &seen, &me).unwrap();
        let entry = payload::build_entry(&decision, None, &seen.approval, &me).unwrap();
        let edited = json!({"arguments": {"amount": 42, "customer": "ACME", "note": "as agreed\\nby phone"}});
        assert_eq!(Value::Object(entry.decision.parameters.unwrap().0), edited);
        for (from, to, why) in [
            ("420", "\"42\"", "amount"),
            ("420", "4200", "amount"),
            ("\"note\"", "\"iban\"", "iban"),
            ("420", "null", "amount"),
        ] {
            let failure = parse_edited(&args(), &before.replace(from, to), &seen, &me).unwrap_err().to_string();
            assert!(failure.contains(why), "{to}: {failure}");
        }
    }

    #[test]
    fn hostile_arguments_are_edited_with_escapes() {
        let hostile = json!({"arguments": {"note": "a\u{202e}b\u{1b}[2J\n# Modify\n---", "none": null, "yes": "no"}});
        let text = as_json(hostile.as_object().unwrap().clone()).unwrap();
        assert!(!hides(&text) && text.lines().all(|line| !line.starts_with('#')), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), hostile);
    }

    #[test]
    fn a_text_is_changed_unless_it_is_empty_or_the_same() {
        let page = |text: &str| Ok(format!("# Modify\n#\n{text}"));
        assert!(is_changed(&page("response: mine\n"), "response: theirs\n"));
        for unchanged in ["response: theirs\n", "", " \n"] {
            assert!(!is_changed(&page(unchanged), "response: theirs\n"), "{unchanged:?}");
        }
        assert!(is_changed(&Err(io::ErrorKind::InvalidData.into()), ""));
        assert!(!is_changed(&Err(io::ErrorKind::NotFound.into()), ""));
    }

    #[test]
    fn an_edit_is_refused_at_a_closed_gate_and_to_a_user_who_cannot_decide() {
        let refusal_for =
            |approval: &Approval, me: &Me| find_refusal(approval, &args(), me, sample::now()).map(|(why, _)| why);
        let (alice, mallory) = (sample::me("alice@example.com", &[]), sample::me("mallory@example.com", &[]));
        let mut approval = sample::approval();
        assert_eq!(refusal_for(&approval, &alice), None);
        assert!(refusal_for(&approval, &mallory).unwrap().contains("mallory@example.com"));
        approval.spec.request.allowed_verdicts = vec![Verdict::Approve];
        assert_eq!(refusal_for(&approval, &alice).unwrap(), "this gate does not take Modify, only Approve:");
        approval.status.as_mut().unwrap().phase = ApprovalPhase::Approved;
        assert_eq!(refusal_for(&approval, &alice).unwrap(), "it was decided already (Approved)");
    }

    #[test]
    fn comments_are_stripped_and_hidden_characters_are_escaped() {
        let request = sample::approval().spec.request;
        let schema = parameters::schema(&request, Verdict::Modify).unwrap();
        let page = format!(
            "{}{}#\nresponse: |\n  # a heading\n",
            render_header(&request, &args(), &schema),
            comment("not\n\u{1b}[31mYAML")
        );
        assert!(page.contains("# It takes {response: <any>}\n") && !page.contains('\u{1b}'), "{page}");
        assert_eq!(strip_comments(&page), "response: |\n  # a heading\n");
        let hostile = Map::from_iter([("response".to_owned(), json!("a\u{202e}b\u{9b}"))]);
        let text = as_yaml(hostile.clone()).unwrap();
        assert!(!hides(&text), "{text}");
        assert_eq!(serde_saphyr::from_str::<Map<String, Value>>(&text).unwrap(), hostile);
    }

    #[test]
    fn the_difference_is_by_lines() {
        let text = line_difference("response: |\n  a\n  b\n", "response: |\n  a\n  c\n");
        assert_eq!(text, "--- shown\n+++ yours\n@@ -1,3 +1,3 @@\n response: |\n   a\n-  b\n+  c\n");
    }
}

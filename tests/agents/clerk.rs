//! One run of the clerk of `workflow.yaml`, with the real engine and real HTTP, and people who give prepared answers.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use signoff_api::{Approval, Decision, Verdict, journal::Usage};
use signoff_engine::End;
use signoff_local::{DecisionError, Local, Run, RunOutcome, Sessions, from_yaml};

/// The longest time of a run. A run that does not stall takes a second at most.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An answer of a person.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The person.
    #[serde(default = "alice")]
    by: String,
    /// A part of the arguments or of the questions to which it belongs. Default: any.
    #[serde(default)]
    about: String,
    #[serde(flatten)]
    decision: Decision,
}

fn alice() -> String {
    "alice".to_owned()
}

impl Answer {
    pub fn approves(about: &str, by: &str) -> Self {
        Self { by: by.to_owned(), about: about.to_owned(), decision: Decision::new(Verdict::Approve) }
    }

    fn is_about(&self, approval: &Approval) -> bool {
        let request = &approval.spec.request;
        let reviewed = request.reviews.as_ref().map(|review| review.response.as_str()).unwrap_or_default();
        let form = serde_json::to_string(&request.form).unwrap();
        reviewed.contains(&self.about) || form.contains(&self.about)
    }
}

/// The result of a run.
pub struct Ended {
    /// The end of the run; `None` if it waits for people who give no answer.
    pub end: Option<End>,
    /// All requests to people.
    pub approvals: Vec<Approval>,
    /// The reasons why answers of people were refused.
    pub refused: Vec<String>,
    /// The tokens that models used.
    pub usage: Option<Usage>,
}

/// Returns the Workflow with the addresses of a provider and of the tools.
pub fn workflow(base_url: &str, tools: &str) -> Value {
    let mut workflow: Value = serde_saphyr::from_str(include_str!("workflow.yaml")).unwrap();
    workflow["spec"]["providers"][0]["openai"]["baseURL"] = base_url.into();
    workflow["spec"]["inputs"][0]["value"] = tools.into();
    workflow
}

/// Runs a Workflow until it ends, or until it waits for people who give no answer.
pub async fn run(workflow: &Value, people: Vec<Answer>) -> Ended {
    tokio::time::timeout(TIMEOUT, run_to_end(workflow, people)).await.expect("the run stalls")
}

async fn run_to_end(workflow: &Value, mut people: Vec<Answer>) -> Ended {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let local = Local::new(Sessions::new(folder.path()), "dana").unwrap();
    let mut run = local.begin(from_yaml(&workflow.to_string(), "dana").unwrap()).unwrap();
    let mut refused = Vec::new();
    let end = loop {
        if let RunOutcome::Over(end) = run.go().await.unwrap() {
            break Some(end);
        }
        let Some((name, answer)) = take_answer(&run, &mut people) else { break None };
        match run.decide(&name, &answer.by, answer.decision).await {
            Ok(_) => {}
            Err(DecisionError::Because(why)) => refused.push(why),
            Err(why) => panic!("{why}"),
        }
    };
    let snapshot = run.snapshot();
    let usage = snapshot.workflow.status.and_then(|status| status.usage);
    Ended { end, approvals: snapshot.approvals, refused, usage }
}

/// Takes the first answer to a pending request out of `people`. Returns the name of the Approval and the answer.
fn take_answer(run: &Run, people: &mut Vec<Answer>) -> Option<(String, Answer)> {
    let pending = run.pending();
    let request_of = |answer: &Answer| pending.iter().find(|approval| answer.is_about(approval));
    let index = people.iter().position(|answer| request_of(answer).is_some())?;
    let name = request_of(&people[index])?.metadata.name.clone().unwrap();
    Some((name, people.remove(index)))
}

//! Routing: the channels and recipients of an event *(pure)*.

use std::{collections::BTreeSet, sync::Arc};

use signoff_api::{
    Digest, Moment,
    gate::{GateType, Subject},
};
use signoff_expr::text::display;

use crate::{
    channel::Recipient,
    config::{ChannelConfig, ChannelKind, Config, NamespaceLabels, Route},
    notice::{Notice, NoticeEvent},
    people::{Medium, People},
};

/// The largest number of people to whom one channel sends the notices of one event. Only large groups have more
/// approvers.
pub const MAX_PEOPLE: usize = 256;
/// The most characters of details that a waiting notice keeps. Most channels show fewer.
const MAX_DETAILS: usize = 4_000;

/// An event of a stored object, before it is routed.
#[derive(Clone, Debug, PartialEq)]
pub struct Occasion {
    /// The kind of the event.
    pub event: NoticeEvent,
    /// The uid of the Approval, or else of the run.
    pub uid: String,
    /// The key of the transition of the object. The same transition always has the same key.
    pub key: String,
    /// The namespace of the run.
    pub namespace: String,
    /// The name of the run.
    pub run: String,
    /// The name of the Approval; `None` for the end of a run.
    pub approval: Option<String>,
    /// The digest of the request.
    pub digest: Option<Digest>,
    /// The name of the gate.
    pub gate: Option<String>,
    /// The type of the gate.
    pub gate_type: Option<GateType>,
    /// The user who requested the run.
    pub requester: String,
    /// The time of the next timeout.
    pub deadline: Option<Moment>,
    /// The consequence of the timeout, in words.
    pub then: Option<String>,
    /// The outcome, in words of the operator.
    pub outcome: Option<String>,
    /// The question and the arguments of a call: untrusted text.
    pub details: Option<String>,
    /// The people whom the event concerns.
    pub audience: Vec<Subject>,
    /// The names of the channels that the workflow author added to the gate.
    pub added: Vec<String>,
    /// The time of the event, as the object stores it.
    pub at: Moment,
}

/// The key of a delivery, from the id of the notice and the recipient. The key is the same after a crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey(String);

impl DeliveryKey {
    /// Returns the key of a notice with this id for a recipient.
    #[must_use]
    pub fn new(id: &str, to: &Recipient) -> Self {
        let person = match to {
            Recipient::Channel => "",
            Recipient::Person(address) => address.as_str(),
        };
        let short = id.get(..KEY_DIGITS).unwrap_or(id);
        Self(format!("{short}.{}", Digest::of_bytes(person.as_bytes()).short(16)))
    }

    /// Returns the key with this stored text.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text of the key, as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key that sorts before all keys of a notice with this id.
    #[must_use]
    pub fn before_all_of(id: &str) -> Self {
        Self(id.get(..KEY_DIGITS).unwrap_or(id).to_owned())
    }

    /// Whether this is the key of a delivery of the notice with this id, to any recipient.
    #[must_use]
    pub fn is_of(&self, id: &str) -> bool {
        let short = id.get(..KEY_DIGITS).unwrap_or(id);
        self.0.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// The number of digits of a notice's id in a key.
const KEY_DIGITS: usize = 16;

/// A notice to one recipient in one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// The name of the channel.
    pub channel: String,
    /// The recipient in the channel.
    pub to: Recipient,
    /// The notice, which all recipients in the channel share.
    pub notice: Arc<Notice>,
}

impl Addressed {
    /// Returns the key of this delivery.
    #[must_use]
    pub fn key(&self) -> DeliveryKey {
        DeliveryKey::new(&self.notice.id, &self.to)
    }
}

/// Returns the id of the notice about a transition of an object.
#[must_use]
pub fn notice_id(uid: &str, key: &str) -> String {
    Digest::of_bytes(format!("{uid}/{key}").as_bytes()).short(32).to_owned()
}

/// Returns the correlation of all notices of a channel about an object.
#[must_use]
pub fn correlation(uid: &str, channel: &str) -> String {
    Digest::of_bytes(format!("{uid}/{channel}").as_bytes()).short(64).to_owned()
}

/// Returns the notices of an event for all channels and recipients. `labels`: the labels of the namespace.
#[must_use]
pub fn route(config: &Config, people: &People, labels: &NamespaceLabels, occasion: &Occasion) -> Vec<Addressed> {
    let channels = config.channels.iter().filter(|channel| reaches(config, channel, labels, occasion));
    channels.flat_map(|channel| address(config, people, channel, occasion)).collect()
}

/// Whether an event goes to a channel: the channel is open to the namespace, and a route leads to the channel or the
/// workflow author added it.
fn reaches(config: &Config, channel: &ChannelConfig, labels: &NamespaceLabels, occasion: &Occasion) -> bool {
    let is_added = channel.authors && occasion.added.contains(&channel.name);
    let is_routed = |route: &Route| {
        let has_event = route.events.is_empty() || route.events.contains(&occasion.event);
        let has_type =
            occasion.gate_type.is_none_or(|gate| route.gate_types.is_empty() || route.gate_types.contains(&gate));
        has_event && has_type && selects(&route.namespaces, labels) && route.to.contains(&channel.name)
    };
    selects(&channel.namespaces, labels) && (is_added || config.routes.iter().any(is_routed))
}

/// The reason why a workflow author cannot add a channel to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No channel has the name.
    Unknown,
    /// The channel is not open to authors, or not for the namespace.
    NotAllowed,
}

/// Returns why a workflow author cannot add a channel, or `None` if the author can. `labels`: the labels of the
/// namespace.
#[must_use]
pub fn refusal(config: &Config, channel: &str, labels: &NamespaceLabels) -> Option<Refusal> {
    match config.channels.iter().find(|known| known.name == channel) {
        None => Some(Refusal::Unknown),
        Some(known) if known.authors && selects(&known.namespaces, labels) => None,
        Some(_) => Some(Refusal::NotAllowed),
    }
}

/// Whether a namespace with these labels has all wanted labels.
fn selects(wanted: &NamespaceLabels, labels: &NamespaceLabels) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Returns the notice of an event in a channel, addressed to each recipient.
fn address(config: &Config, people: &People, channel: &ChannelConfig, occasion: &Occasion) -> Vec<Addressed> {
    let notice = Arc::new(new_notice(config, channel, occasion));
    let addressed = |to| Addressed { channel: channel.name.clone(), to, notice: Arc::clone(&notice) };
    recipients(people, channel, occasion).into_iter().map(addressed).collect()
}

/// Returns the recipients of an event in a channel: the persons of the audience who have an address there. The channel
/// as a whole is a recipient if no person has an address, and in Slack if the event concerns more than one person.
fn recipients(people: &People, channel: &ChannelConfig, occasion: &Occasion) -> BTreeSet<Recipient> {
    let persons = |medium| {
        let addresses = people.addresses(&occasion.audience, medium).into_iter().take(MAX_PEOPLE);
        addresses.map(Recipient::Person).collect::<BTreeSet<_>>()
    };
    let concerns_one_person = match occasion.event {
        NoticeEvent::VoteVoided | NoticeEvent::Ended => true,
        NoticeEvent::Asked | NoticeEvent::Reminded | NoticeEvent::Escalated | NoticeEvent::Taken => false,
    };
    let (mut recipients, has_default) = match &channel.kind {
        ChannelKind::Slack(slack) if slack.direct_messages => (persons(Medium::Slack), true),
        ChannelKind::Smtp(smtp) => (persons(Medium::Mail), smtp.to.is_some()),
        ChannelKind::Slack(_) | ChannelKind::Webhook(_) | ChannelKind::PagerDuty(_) => (BTreeSet::new(), true),
    };
    let goes_to_channel = match &channel.kind {
        ChannelKind::Slack(_) => !concerns_one_person,
        ChannelKind::Smtp(_) | ChannelKind::Webhook(_) | ChannelKind::PagerDuty(_) => false,
    };
    if has_default && (goes_to_channel || recipients.is_empty()) {
        recipients.insert(Recipient::Channel);
    }
    recipients
}

fn new_notice(config: &Config, channel: &ChannelConfig, occasion: &Occasion) -> Notice {
    Notice {
        id: notice_id(&occasion.uid, &occasion.key),
        event: occasion.event,
        correlation: correlation(&occasion.uid, &channel.name),
        namespace: occasion.namespace.clone(),
        run: occasion.run.clone(),
        approval: occasion.approval.clone(),
        gate: occasion.gate.clone(),
        kind: occasion.gate_type.map(|gate| describe_gate_type(gate).to_owned()),
        requester: occasion.requester.clone(),
        deadline: occasion.deadline,
        then: occasion.then.clone(),
        outcome: occasion.outcome.clone(),
        details: occasion.details.as_deref().filter(|_| channel.has_details).map(|text| display(text, MAX_DETAILS)),
        link: page_url(config, occasion),
        at: occasion.at,
    }
}

/// Returns the URL of the page of the Approval or run. Names of objects need no escaping in a path.
fn page_url(config: &Config, occasion: &Occasion) -> Option<String> {
    let inbox = config.inbox.as_ref()?;
    let path = match (&occasion.approval, &occasion.digest) {
        (Some(name), Some(digest)) => format!("n/{}/a/{name}?d={}", occasion.namespace, digest.short(16)),
        (Some(name), None) => format!("n/{}/a/{name}", occasion.namespace),
        (None, _) => format!("n/{}/w/{}", occasion.namespace, occasion.run),
    };
    inbox.join(&path).ok().map(String::from)
}

/// Returns the kind of a gate in words, such as "a plan".
fn describe_gate_type(gate: GateType) -> &'static str {
    match gate {
        GateType::Step => "a decision in the workflow",
        GateType::PlanApproval => "a plan",
        GateType::FinalResponse => "a final result",
        GateType::OutputValidation => "an answer",
        GateType::ErrorEscalation => "a failure",
        GateType::StepStart => "the start of a step",
        GateType::ToolExecution | GateType::SpecificTools | GateType::DestructiveActions | GateType::Custom => {
            "a call of a tool"
        }
        GateType::Question => "a question of an agent",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    const CONFIG: &str = r##"
inbox: https://signoff.example.com
channels:
- {name: finance, authors: true, namespaces: {env: prod}, details: full,
   slack: {tokenFile: /s/slack, channel: "#finance", directMessages: true}}
- {name: mail, smtp: {url: "smtps://mail.example.com", from: signoff@example.com}}
- {name: oncall, pagerduty: {routingKeyFile: /s/key}}
people: {file: /s/people}
routes:
- {namespaces: {env: prod}, gateTypes: [toolExecution], events: [Asked, Taken], to: [oncall]}
- {events: [Asked, VoteVoided, Ended], to: [mail]}
"##;

    fn occasion(event: NoticeEvent) -> Occasion {
        Occasion {
            event,
            uid: "uid-1".into(),
            key: "asked".into(),
            namespace: "pay".into(),
            run: "refund".into(),
            approval: Some("refund-review-0123456789".into()),
            digest: Some(Digest::of_bytes(b"request")),
            gate: Some("review".into()),
            gate_type: Some(GateType::ToolExecution),
            requester: "dana".into(),
            deadline: None,
            then: None,
            outcome: None,
            details: Some("Refund <!channel> https://evil.example?".into()),
            audience: vec![Subject::user("alice"), Subject::user("bob"), Subject::user("nameless")],
            added: vec!["finance".into(), "mail".into()],
            at: serde_json::from_str("\"2030-01-01T00:00:00Z\"").unwrap(),
        }
    }

    /// Routes an event in a namespace with this label `env`.
    fn route_in(env: &str, occasion: &Occasion) -> Vec<Addressed> {
        let people = "users: {alice: {mail: alice@example.com, slack: U1}, bob: {mail: bob@example.com}}";
        let people = People::parse(people, &[]).unwrap();
        let labels = BTreeMap::from([("env".to_owned(), env.to_owned())]);
        route(&Config::parse(CONFIG).unwrap(), &people, &labels, occasion)
    }

    fn recipient_names(addressed: &[Addressed]) -> Vec<String> {
        let name = |addressed: &Addressed| match &addressed.to {
            Recipient::Channel => addressed.channel.clone(),
            Recipient::Person(address) => format!("{} {address}", addressed.channel),
        };
        addressed.iter().map(name).collect()
    }

    #[test]
    fn event_reaches_its_routes_and_the_channels_of_the_author() {
        let asked = occasion(NoticeEvent::Asked);
        let all =
            ["finance", "finance U1", "finance bob@example.com", "mail alice@example.com", "mail bob@example.com"];
        let with_oncall: Vec<_> = all.into_iter().chain(["oncall"]).collect();
        assert_eq!(recipient_names(&route_in("prod", &asked)), with_oncall);
        // Authors cannot add `mail`; the event reaches it through a route.
        assert_eq!(recipient_names(&route_in("dev", &asked)), ["mail alice@example.com", "mail bob@example.com"]);
        let step = Occasion { gate_type: Some(GateType::Step), ..asked };
        assert_eq!(recipient_names(&route_in("prod", &step)), all);
        let reminded = occasion(NoticeEvent::Reminded);
        assert_eq!(recipient_names(&route_in("prod", &reminded)), ["finance", "finance U1", "finance bob@example.com"]);
    }

    #[test]
    fn author_can_add_only_channels_that_are_open_to_authors_and_to_the_namespace() {
        let config = Config::parse(CONFIG).unwrap();
        let refusal_in =
            |env: &str, channel: &str| refusal(&config, channel, &BTreeMap::from([("env".to_owned(), env.to_owned())]));
        assert_eq!(refusal_in("prod", "finance"), None);
        assert_eq!(refusal_in("dev", "finance"), Some(Refusal::NotAllowed));
        assert_eq!(refusal_in("prod", "mail"), Some(Refusal::NotAllowed));
        assert_eq!(refusal_in("prod", "finanec"), Some(Refusal::Unknown));
    }

    #[test]
    fn voided_vote_goes_to_the_channel_only_if_the_person_has_no_address() {
        let voided = |name: &str| Occasion { audience: vec![Subject::user(name)], ..occasion(NoticeEvent::VoteVoided) };
        assert_eq!(recipient_names(&route_in("prod", &voided("alice"))), ["finance U1", "mail alice@example.com"]);
        assert_eq!(recipient_names(&route_in("prod", &voided("nameless"))), ["finance"], "mail has no default");
    }

    #[test]
    fn details_go_only_to_the_channel_that_has_them_and_the_link_has_the_digest() {
        for addressed in route_in("prod", &occasion(NoticeEvent::Asked)) {
            assert_eq!(addressed.notice.details.is_some(), addressed.channel == "finance", "{addressed:?}");
            let digest = Digest::of_bytes(b"request");
            let link = format!("https://signoff.example.com/n/pay/a/refund-review-0123456789?d={}", digest.short(16));
            assert_eq!(addressed.notice.link.as_deref(), Some(link.as_str()));
        }
        let ended = Occasion { approval: None, gate_type: None, ..occasion(NoticeEvent::Ended) };
        let link = route_in("prod", &ended).first().and_then(|addressed| addressed.notice.link.clone());
        assert_eq!(link.as_deref(), Some("https://signoff.example.com/n/pay/w/refund"));
    }

    #[test]
    fn details_are_cut_before_they_are_queued() {
        let details = Some("💩".repeat(10 * 1024));
        let asked = route_in("prod", &Occasion { details, ..occasion(NoticeEvent::Asked) });
        let kept: Vec<_> = asked.iter().filter_map(|addressed| addressed.notice.details.as_deref()).collect();
        assert!(!kept.is_empty() && kept.iter().all(|text| text.chars().count() == MAX_DETAILS && text.ends_with('…')));
        let details = Some("x".repeat(MAX_DETAILS));
        let uncut = route_in("prod", &Occasion { details: details.clone(), ..occasion(NoticeEvent::Asked) });
        assert!(uncut.iter().any(|addressed| addressed.notice.details == details));
    }

    #[test]
    fn ids_differ_by_transition_and_the_correlation_does_not() {
        let asked = route_in("prod", &occasion(NoticeEvent::Asked));
        let taken = route_in("prod", &Occasion { key: "taken".into(), ..occasion(NoticeEvent::Taken) });
        let notice_for_oncall =
            |all: &[Addressed]| all.iter().find(|addressed| addressed.channel == "oncall").unwrap().notice.clone();
        let (asked_notice, taken_notice) = (notice_for_oncall(&asked), notice_for_oncall(&taken));
        assert_eq!(asked_notice.correlation, taken_notice.correlation);
        assert_ne!(asked_notice.id, taken_notice.id);
        let key = asked.first().unwrap().key();
        assert!(key.is_of(&asked_notice.id) && !key.is_of(&taken_notice.id) && !key.is_of(""));
    }
}

//! Tests of valid and invalid configurations.
#![allow(clippy::unwrap_used)]

use super::*;

const EXAMPLE: &str = r##"
inbox: https://signoff.example.com
allowedAddresses: [10.0.0.25/32]
channels:
- {name: finance, authors: true, namespaces: {env: prod}, details: full,
   slack: {tokenFile: /s/slack, channel: "#finance-approvals", directMessages: true}}
- {name: mail, smtp: {url: "smtps://mail.example.com:465", userFile: /s/user, passwordFile: /s/pw, from: signoff@example.com}}
- {name: teams, webhook: {urlFile: /s/teams, format: teams}}
- {name: hook, webhook: {urlFile: /s/hook, secretFile: /s/key, format: standard}}
- {name: events, webhook: {urlFile: /s/events, format: cloudevents}}
- {name: oncall, pagerduty: {routingKeyFile: /s/pagerduty}}
people: {file: /s/people.yaml, usersAreEmails: {domains: [example.com]}}
routes: [{namespaces: {env: prod}, gateTypes: [step, toolExecution], events: [Asked, Taken], to: [finance, hook]}]
"##;

#[test]
fn complete_configuration_is_parsed() {
    let config = Config::parse(EXAMPLE).unwrap();
    assert_eq!(config.channels.len(), 6);
    assert_eq!(config.allowed_addresses, ["10.0.0.25/32".parse::<Allowed>().unwrap()]);
    let finance = config.channels.first().unwrap();
    assert!(finance.has_details && finance.authors && finance.folds());
    assert_eq!(config.people.domains, ["example.com"]);
    assert_eq!(config.files().len(), 9);
    let route = config.routes.first().unwrap();
    assert_eq!(route.events, BTreeSet::from([NoticeEvent::Asked, NoticeEvent::Taken]));
    assert_eq!(route.gate_types, [GateType::Step, GateType::ToolExecution]);
    assert_eq!(Config::parse("{}").unwrap(), Config::default());
}

#[test]
fn an_error_names_the_field_and_the_remedy() {
    let channel = |rest: &str| format!("channels: [{{name: a, {rest}}}]");
    let smtp = |rest: &str| channel(&format!("smtp: {{from: a@example.com, {rest}}}"));
    for (text, why) in [
        ("inbox: signoff.example.com".to_owned(), "inbox: not a URL"),
        ("inbox: http://signoff.example.com".to_owned(), "inbox: must be an origin with TLS"),
        ("inbox: https://signoff.example.com/n".to_owned(), "inbox: must be an origin"),
        ("allowedAddresses: [somewhere]".to_owned(), "allowedAddresses[0]: not an address to allow; write a network"),
        (
            "allowedAddresses: [10.0.0.1, 169.254.169.254]".to_owned(),
            "allowedAddresses[1]: is a cloud metadata address",
        ),
        ("allowedAddresses: [169.254.0.0/16]".to_owned(), "allowedAddresses[0]: is a link-local address"),
        ("allowedAddresses: [\"::ffff:10.0.0.1\"]".to_owned(), "allowedAddresses[0]: is an IPv4-mapped address"),
        ("colour: red".to_owned(), "notifications: unknown field, expected one of `inbox`"),
        (channel("slak: {}"), "channels[0]: unknown field, expected one of `name`"),
        (channel("authors: true"), "channels[0]: needs exactly one of slack, smtp, webhook and pagerduty"),
        (channel("slack: {tokenFile: /t, channel: \"<!channel>\"}"), "channels[0].slack.channel: not a channel"),
        (
            channel("slack: {tokenFile: /t, channel: \"#a\", api: \"http://slack.example.com\"}"),
            "channels[0].slack.api: must be",
        ),
        (
            channel("pagerduty: {routingKeyFile: /k, api: \"https://pager.example.com/\"}"),
            "channels[0].pagerduty.api: must be",
        ),
        (channel("details: full, pagerduty: {routingKeyFile: /k}"), "channels[0].details: full goes round"),
        (channel("webhook: {urlFile: /u, format: standard}"), "channels[0].webhook.secretFile: is required"),
        (
            channel("webhook: {urlFile: /u, format: xml}"),
            "channels[0].webhook: unknown variant, expected one of `standard`",
        ),
        (smtp("url: \"http://mail.example.com\""), "channels[0].smtp.url: must begin with smtps://"),
        (smtp("url: \"smtps://u:p@mail.example.com\""), "channels[0].smtp.url: has a user or a password"),
        (smtp("url: \"smtps://mail.example.com\", userFile: /u"), "channels[0].smtp: userFile and passwordFile"),
        (smtp("url: \"smtps://mail.example.com\", to: nobody"), "channels[0].smtp.to: not a mail address"),
        ("channels: [{name: A, pagerduty: {routingKeyFile: /k}}]".to_owned(), "channels[0].name: not a name"),
        ("routes: [{to: [a]}]".to_owned(), "routes[0].to[0]: no such channel"),
        ("routes: [{to: []}]".to_owned(), "routes[0].to: is empty"),
        ("routes: [{to: [a], events: [Told]}]".to_owned(), "routes[0]: unknown variant, expected one of `Asked`"),
        ("people: {usersAreEmails: {domains: [\"*\"]}}".to_owned(), "people.usersAreEmails.domains[0]: not a domain"),
    ] {
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_duplicate_channel_is_refused() {
    let one = "{name: a, pagerduty: {routingKeyFile: /k}}";
    let error = Config::parse(&format!("channels: [{one}, {one}]")).unwrap_err();
    assert_eq!(error.to_string(), "channels[1].name: duplicate name; give each channel its own");
}

#[test]
fn configuration_with_more_than_16_channels_is_refused() {
    let all: Vec<_> = (0..17).map(|n| format!("{{name: c{n}, pagerduty: {{routingKeyFile: /k}}}}")).collect();
    let error = Config::parse(&format!("channels: [{}]", all.join(", "))).unwrap_err();
    assert_eq!(error.to_string(), "channels: has 17 entries; at most 16 are possible");
}

#[test]
fn error_contains_no_value_of_the_configuration() {
    let channel = |rest: &str| format!("channels: [{{name: a, {rest}}}]");
    for text in [
        "SECRET".to_owned(),
        "- SECRET".to_owned(),
        "SECRET: x".to_owned(),
        "inbox: SECRET".to_owned(),
        "inbox: [SECRET]".to_owned(),
        "inbox: \"https://SECRET@signoff.example.com\"".to_owned(),
        "inbox: &SECRET [".to_owned(),
        "inbox: *SECRET".to_owned(),
        "inbox: 'SECRET".to_owned(),
        "inbox: a\ninbox: SECRET".to_owned(),
        "{SECRET: 1, SECRET: 2}".to_owned(),
        "allowedAddresses: [SECRET]".to_owned(),
        "allowedAddresses: SECRET".to_owned(),
        "channels: SECRET".to_owned(),
        "channels: [SECRET]".to_owned(),
        "channels: [{name: SECRET, pagerduty: {routingKeyFile: /k}}]".to_owned(),
        "channels: [{name: a, name: SECRET}]".to_owned(),
        channel("slack: SECRET"),
        channel("SECRET: {}"),
        channel("authors: SECRET, pagerduty: {routingKeyFile: /k}"),
        channel("details: SECRET, pagerduty: {routingKeyFile: /k}"),
        channel("namespaces: SECRET, pagerduty: {routingKeyFile: /k}"),
        channel("slack: {token: SECRET, tokenFile: /t, channel: a}"),
        channel("slack: {SECRET: token, tokenFile: /t, channel: a}"),
        channel("slack: {tokenFile: [SECRET], channel: a}"),
        channel("slack: {tokenFile: /t, channel: \"SECRET!\"}"),
        channel("slack: {tokenFile: /t, channel: a, api: \"http://SECRET\"}"),
        channel("slack: {tokenFile: /t, channel: a, directMessages: SECRET}"),
        channel("webhook: {urlFile: /u, format: SECRET}"),
        channel("webhook: {url: \"https://SECRET\", urlFile: /u, format: teams}"),
        channel("pagerduty: {routingKey: SECRET}"),
        channel("smtp: {url: SECRET, from: a@example.com}"),
        channel("smtp: {url: \"smtps://u:SECRET@mail.example.com\", from: a@example.com}"),
        channel("smtp: {url: \"smtps://mail.example.com\", from: SECRET}"),
        channel("smtp: {url: \"smtps://mail.example.com\", password: SECRET, from: a@example.com}"),
        "people: SECRET".to_owned(),
        "people: {usersAreEmails: {domains: [SECRET]}}".to_owned(),
        "routes: [{to: SECRET}]".to_owned(),
        "routes: [{to: [SECRET]}]".to_owned(),
        "routes: [{to: [a], events: [SECRET]}]".to_owned(),
        "routes: [{to: [a], gateTypes: [SECRET]}]".to_owned(),
    ] {
        let error = Config::parse(&text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{text}: {error}");
        assert!(!error.field.is_empty() && !error.problem.is_empty(), "{text}");
    }
}

//! Tests of rendered mails, also of hostile notices, and of refused settings.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::notice::NoticeEvent;

fn notice() -> Notice {
    let at = serde_json::from_value("2026-11-28T09:00:00Z".into()).unwrap();
    Notice {
        id: "0123456789abcdef.asked".into(),
        event: NoticeEvent::Asked,
        correlation: "c1".into(),
        namespace: "prod".into(),
        run: "refund-7".into(),
        approval: Some("refund-7-pay-0123456789".into()),
        gate: Some("pay".into()),
        kind: None,
        requester: "alice".into(),
        deadline: None,
        then: None,
        outcome: None,
        details: None,
        link: Some("https://signoff.example.com/n/prod/a/refund-7-pay-0123456789?d=0123456789abcdef".into()),
        at,
    }
}

/// Returns a mail as it is sent. Of the quoted-printable encoding, only what the tests need is decoded.
fn render_mail(notice: &Notice, thread: Option<&str>) -> String {
    let from = "Signoff <signoff@example.com>".parse().unwrap();
    let (message, _) = render_message(notice, &from, "bob@example.com", thread).unwrap();
    let mail = String::from_utf8(message.formatted()).unwrap();
    let (head, body) = mail.split_once("\r\n\r\n").unwrap();
    format!("{head}\r\n\r\n{}", body.replace("=\r\n", ""))
}

fn head(mail: &str) -> Vec<&str> {
    let (head, _) = mail.split_once("\r\n\r\n").unwrap();
    head.split("\r\n").collect()
}

#[test]
fn mail_has_the_id_of_the_notice_and_answers_the_first_mail() {
    let first = render_mail(&notice(), None);
    for line in [
        "Subject: Decision needed: pay of prod/refund-7",
        "Message-ID: <0123456789abcdef.asked@example.com>",
        "Content-Type: text/plain; charset=utf-8",
        "Auto-Submitted: auto-generated",
        "To: bob@example.com",
    ] {
        assert!(head(&first).contains(&line), "{line} in {first}");
    }
    assert!(!first.contains("In-Reply-To"), "{first}");
    assert!(first.contains("Open the page: https://signoff.example.com/n/prod/a/"), "{first}");

    let handle = "<0123456789abcdef.asked@example.com>";
    let taken = Notice { id: "x.taken".into(), event: NoticeEvent::Taken, ..notice() };
    let second = render_mail(&taken, parse_message_id(handle));
    assert!(head(&second).contains(&format!("In-Reply-To: {handle}").as_str()), "{second}");
    assert!(head(&second).contains(&format!("References: {handle}").as_str()), "{second}");
}

#[test]
fn untrusted_text_becomes_no_header_link_or_line_of_the_operator() {
    let hostile = [
        "x\r\nBcc: eve@evil.com",
        "x\nContent-Type: text/html\n\n<a href=\"https://evil.com\">y</a>",
        "x\r\n.\r\nMAIL FROM:<eve@evil.com>",
        "https://evil.com/ www.evil.com",
        "\u{202e}moc.live",
        "<a href=\"mailto:eve@evil.com\">x</a> tel:+15550100 @everyone",
        "evil。com evil．com evil｡com evil.com:8080/x",
        &"evil.com ".repeat(5_000),
    ];
    for text in hostile {
        let notice = Notice {
            namespace: text.into(),
            run: text.into(),
            gate: Some(text.into()),
            kind: Some(text.into()),
            requester: text.into(),
            then: Some(text.into()),
            outcome: Some(text.into()),
            details: Some(text.into()),
            ..notice()
        };
        let mail = render_mail(&notice, None);
        let names: Vec<&str> = head(&mail)
            .iter()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split(':').next())
            .collect();
        let known = [
            "From",
            "To",
            "Subject",
            "Message-ID",
            "MIME-Version",
            "Content-Type",
            "Auto-Submitted",
            "Content-Transfer-Encoding",
            "Date",
        ];
        assert!(names.iter().all(|name| known.contains(name)) && names.len() == known.len(), "{names:?}");
        assert!(!mail.contains("\r\n.\r\n") && mail.len() < 64 * 1024, "{mail}");
        let words = Wording::new(&notice, Rendering::Plain, DETAILS_UNITS);
        let body = render_body(&notice, &words);
        for part in ["evil.com", "evil。com", "evil．com", "evil｡com", "mailto:", "tel:+", "@everyone"] {
            assert!(!body.contains(part) && !words.title.contains(part), "{part} in {body}");
        }
        assert_eq!(body.matches("://").count(), 1, "only the link of the operator: {body}");
        let (_, fenced) = body.split_once(DETAILS_LABEL).unwrap();
        assert!(fenced.trim().lines().all(|line| line.starts_with("| ") || line.starts_with(MARGIN)), "{fenced}");
    }
}

#[test]
fn handle_that_is_not_a_message_id_is_ignored() {
    for malformed in ["", "<>", "<a@b", "a@b", "<a@b>\r\nBcc: x", "<a b@c>", "<a@b@c>", "<@b>"] {
        assert_eq!(parse_message_id(malformed), None, "{malformed}");
    }
    assert_eq!(message_id("a b\r\n<c>", "example.com"), "<a-b---c-@example.com>");
}

#[test]
fn invalid_address_is_a_final_failure() {
    let from = "signoff@example.com".parse().unwrap();
    for wrong in ["SECRET", "SECRET@", "SECRET@example.com\r\nRCPT TO:<x@y.z>", "a SECRET@example.com"] {
        let refused = render_message(&notice(), &from, wrong, None).unwrap_err();
        assert_eq!(refused, SendError::Dead { why: "mail: the address of the recipient is not valid".to_owned() });
    }
}

#[test]
fn url_decides_host_port_and_kind_of_tls() {
    let server = |url: &str| MailServer::from_url(&url.parse().unwrap());
    let expected = |host: &str, port, is_tls_first| Some(MailServer { host: host.into(), port, is_tls_first });
    assert_eq!(server("smtps://Mail.Example.com"), expected("mail.example.com", 465, true));
    assert_eq!(server("smtp://10.0.0.25:2525/"), expected("10.0.0.25", 2525, false));
    assert_eq!(server("smtps://[fd12::25]:465"), expected("fd12::25", 465, true));
    for wrong in ["http://mail", "smtp://", "smtps://u:p@mail", "smtp://mail/x", "smtp://mail?tls=no"] {
        assert_eq!(server(wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn a_server_at_a_special_address_is_refused_before_any_connection() {
    let settings = SmtpConfig {
        url: "smtps://127.0.0.1:465".parse().unwrap(),
        user_file: None,
        password_file: None,
        from: "signoff@example.com".into(),
        to: None,
    };
    let channel = MailChannel::new(settings, AddressSettings::default()).unwrap();
    let to = Recipient::Person("bob@example.com".into());
    let refused = channel.send(&notice(), &to, None).await.unwrap_err();
    assert!(matches!(&refused, SendError::Later { why, .. } if why.contains("allowedAddresses")), "{refused:?}");
    assert!(!format!("{refused:?}").contains("127.0.0.1") && !format!("{refused:?}").contains("bob"), "{refused:?}");
    let failure = channel.send(&notice(), &Recipient::Channel, None).await.unwrap_err();
    assert!(matches!(failure, SendError::Dead { .. }));
}

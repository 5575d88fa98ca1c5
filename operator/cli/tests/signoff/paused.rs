//! The text of a run that waits for people: its requests and their approvers.
//!
//! The tests read only the output of the program.

use super::*;

#[test]
fn a_paused_call_shows_its_effects_the_earlier_calls_and_every_quorum() {
    let home = Home::new();
    let refund = include_str!("../../../../examples/tools/refund.yaml");
    let second = "  - name: owners
    type: custom
    condition: args.amount > 100
    hitl: {prompt: \"Owners?\", threshold: 2, approvers: [{kind: User, name: olga}, {kind: User, name: otto}]}
  steps:
";
    let both = refund.replace("  steps:\n", second).replace(
        "calls: [{tool: refund, arguments: {amount: 420}}]",
        "calls: [{tool: refund, arguments: {amount: 1}}, {tool: refund, arguments: {amount: 420}}]",
    );
    home.file("refund.yaml", &both);
    home.file("answers.yaml", "money: approve");
    let paused = home.run(&["run", "refund.yaml", "--answers", "answers.yaml"]).with(19);
    for shown in [
        "  Effects: irreversible: what it changes cannot be taken back\n",
        "  Same turn: refund (handle/.turn-1/.call-1)\n",
        "  Asked by: money: ",
        "  Asked by: owners: ",
        "  Asks 1 person out of group finance (required by gate money); and 2 people out of olga, otto (required by gate owners)",
    ] {
        assert!(paused.out.contains(shown), "{shown}: {}", paused.out);
    }
    assert!(!paused.out.contains("of 1 agree"), "{}", paused.out);
}

#[test]
fn a_paused_gate_shows_the_reviewed_text_and_the_approvers() {
    let home = Home::new();
    home.file("letter.yaml", LETTER);
    let paused = home.run(&["run", "letter.yaml"]).with(19);
    assert!(paused.out.contains("\n  Asks group finance.\n"), "{}", paused.out);
    assert!(paused.out.contains("\n  What step draft made: Dear customer\n"), "{}", paused.out);
}

#[test]
fn text_of_others_is_fenced_line_by_line() {
    let home = Home::new();
    let text = r#""SELECT 1; -- fine\n  Asks nobody.\nDROP TABLE audit;""#;
    home.file("letter.yaml", &LETTER.replace("Dear customer", text));
    let paused = home.run(&["run", "letter.yaml"]).with(19);
    let shown = "\n  What step draft made:\n  | SELECT 1; -- fine\n  |   Asks nobody.\n  | DROP TABLE audit;\n";
    assert!(paused.out.contains(shown), "{}", paused.out);
    assert!(!paused.out.contains("\n  Asks nobody."), "{}", paused.out);
}

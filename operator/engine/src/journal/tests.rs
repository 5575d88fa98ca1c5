//! Tests that a journal in segments reads and writes like a journal in one piece.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::json;
use signoff_api::{Seq, WorkflowStatus, journal};

use super::*;

/// Limits that a few records exceed.
const TINY: JournalLimits = JournalLimits { steps: 700, segment: 700, largest: 700 };

fn record(path: &str, attempt: i32, seq: Seq, done: Option<Seq>) -> StepRecord {
    let mut record = json!({
        "path": path, "attempt": attempt, "kind": "set", "phase": "Pending", "seq": seq, "at": "2026-01-01T00:00:00Z",
    });
    if let Some(done) = done {
        record["phase"] = json!("Succeeded");
        record["done"] = json!(done);
        record["response"] = json!("what came of it");
    }
    serde_json::from_value(record).unwrap()
}

/// Adds a record that is finished immediately.
fn add(journal: &mut Journal, path: &str) {
    let (seq, done) = (journal.next_seq(), journal.next_seq());
    assert!(journal.put(record(path, 1, seq, Some(done))));
}

/// Returns the part of the status that a commit writes, through JSON, as the API server returns it.
fn status(journal: &Journal) -> WorkflowStatus {
    let status = WorkflowStatus {
        seq: journal.seq(),
        steps: journal.steps(),
        segments: journal.segments().to_vec(),
        journal_version: Some(journal::version(journal.records().iter(), journal.segments())),
        ..WorkflowStatus::default()
    };
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// Folds the journal, and reads it again as the next transition does.
fn reread(journal: &mut Journal, room: &JournalLimits, stored: &mut Segments) -> Journal {
    for folded in journal.fold_finished(room).unwrap() {
        assert_eq!(folded.digest, signoff_api::Digest::of_bytes(folded.text.as_bytes()));
        stored.insert(folded.digest, read_segment(&folded.text).unwrap());
    }
    Journal::of(&status(journal), stored).unwrap()
}

#[test]
fn a_record_is_found_by_path_and_attempt() {
    let mut journal = Journal::default();
    for (at, (path, attempt)) in [("b", 1), ("a", 2), ("a", 1), ("b", 2)].into_iter().enumerate() {
        assert!(journal.put(record(path, attempt, Seq::from(i64::try_from(at).unwrap()), None)));
    }
    assert_eq!(journal.get("a", 2).map(|r| r.seq), Some(Seq::from(1)));
    assert_eq!(journal.shared("b", 2).map(|r| r.seq), Some(Seq::from(3)));
    assert_eq!(journal.get("a", 3), None);
    let order: Vec<_> = journal.records().iter().map(|r| (r.path.as_str(), r.attempt)).collect();
    assert_eq!(order, [("b", 1), ("a", 2), ("a", 1), ("b", 2)], "in the order in which they began");
    let read = Journal::new(Seq::from(9), journal.records().to_vec());
    assert_eq!((read.seq(), read.records()), (Seq::from(9), journal.records()));
}

#[test]
fn a_finished_record_never_changes() {
    let mut journal = Journal::default();
    assert!(journal.put(record("a", 1, Seq::first(), None)));
    assert!(journal.put(record("a", 1, Seq::first(), Some(Seq::first().next()))));
    assert!(!journal.put(record("a", 1, Seq::first(), None)));
    assert_eq!(journal.get("a", 1).and_then(|r| r.done), Some(Seq::from(2)));
}

#[test]
fn a_lookup_in_a_long_journal_reads_one_record() {
    let mut journal = Journal::default();
    (0..1000).for_each(|at| add(&mut journal, &format!("step-{at}")));
    let (is_found, reads) = reads::of(|| journal.get("step-700", 1).is_some());
    assert_eq!((is_found, reads), (true, 1));
    let (copy, reads) = reads::of(|| journal.clone());
    assert_eq!((copy, reads), (journal, 0), "a copy shares its records");
}

#[test]
fn records_under_a_path_are_found_without_reading_other_records() {
    let mut journal = Journal::default();
    for path in ["b/x", "a", "b", "b/y", "b-c/x", "c/b/x", "b/x#2"] {
        add(&mut journal, path);
    }
    let under = |prefix: &str| journal.under(prefix).map(|r| r.path.as_str()).collect::<Vec<_>>();
    assert_eq!(under("b/"), ["b/x", "b/x#2", "b/y"]);
    assert_eq!(under("c/"), ["c/b/x"]);
    assert_eq!(under("d"), Vec::<&str>::new());
    assert_eq!(under("").len(), 7);
    let (_, reads) = reads::of(|| under("b/"));
    assert!(reads <= 4, "{reads}");
}

#[test]
fn a_journal_below_its_limit_is_not_folded() {
    let mut journal = Journal::default();
    (0..100).for_each(|at| add(&mut journal, &format!("step-{at}")));
    assert_eq!(journal.fold_finished(&JournalLimits::default()).unwrap(), []);
    assert_eq!((journal.steps().len(), status(&journal).journal_version), (100, Some(1)));
}

#[test]
fn the_oldest_finished_records_move_out_and_the_newest_stay() {
    let mut journal = Journal::default();
    (0..7).for_each(|at| add(&mut journal, &format!("step-{at}")));
    let folded = journal.fold_finished(&TINY).unwrap();
    let names = |records: &[Arc<StepRecord>]| records.iter().map(|r| r.path.clone()).collect::<Vec<_>>();
    assert_eq!(
        folded.iter().map(|f| names(&f.records)).collect::<Vec<_>>(),
        [["step-0", "step-1", "step-2", "step-3", "step-4"]]
    );
    assert!(folded.iter().all(|f| f.text.len() <= TINY.segment), "{folded:?}");
    let status = status(&journal);
    assert_eq!(status.steps.iter().map(|r| &r.path).collect::<Vec<_>>(), ["step-5", "step-6"]);
    assert_eq!(status.journal_version, Some(2));
    let [segment] = &status.segments[..] else { panic!("{:?}", status.segments) };
    assert_eq!((segment.records, segment.through), (5, Seq::from(10)));
    assert_eq!((&segment.digest, segment.size), (&folded[0].digest, i64::try_from(folded[0].text.len()).unwrap()));
}

#[test]
fn an_unfinished_record_is_not_moved_and_keeps_its_position() {
    let mut journal = Journal::default();
    let seq = journal.next_seq();
    journal.put(record("gate", 1, seq, None));
    (0..20).for_each(|at| add(&mut journal, &format!("step-{at}")));
    let mut stored = Segments::new();
    let read = reread(&mut journal, &TINY, &mut stored);
    assert_eq!(journal.steps()[0].path, "gate");
    assert_eq!(read.records(), journal.records());
    assert_eq!(read.records().iter().next().map(|r| r.path.as_str()), Some("gate"));
}

#[test]
fn a_journal_of_unfinished_records_is_not_folded() {
    let mut journal = Journal::default();
    for at in 0..20 {
        let seq = journal.next_seq();
        journal.put(record(&format!("gate-{at}"), 1, seq, None));
    }
    assert_eq!(journal.fold_finished(&TINY).unwrap(), []);
    assert_eq!(journal.steps().len(), 20);
}

#[test]
fn a_journal_without_new_records_moves_none() {
    let mut journal = Journal::default();
    (0..20).for_each(|at| add(&mut journal, &format!("step-{at}")));
    let mut read = Journal::new(journal.seq(), journal.steps());
    assert_eq!(read.fold_finished(&TINY).unwrap(), []);
    assert!(!journal.fold_finished(&TINY).unwrap().is_empty());
}

#[test]
fn a_missing_segment_is_an_error_with_its_digest() {
    let mut journal = Journal::default();
    (0..20).for_each(|at| add(&mut journal, &format!("step-{at}")));
    let folded = journal.fold_finished(&TINY).unwrap();
    assert!(folded.len() > 2, "{}", folded.len());
    let mut stored: Segments = folded.iter().map(|f| (f.digest.clone(), Arc::clone(&f.records))).collect();
    stored.remove(&folded[1].digest);
    let missing = JournalError::Missing([folded[1].digest.clone()].into());
    assert_eq!(Journal::of(&status(&journal), &stored), Err(missing));
}

#[test]
fn a_status_without_its_segments_is_an_error() {
    let mut journal = Journal::default();
    (0..20).for_each(|at| add(&mut journal, &format!("step-{at}")));
    journal.fold_finished(&TINY).unwrap();
    let torn = WorkflowStatus { segments: Vec::new(), ..status(&journal) };
    assert_eq!(Journal::of(&torn, &Segments::new()), Err(JournalError::SegmentsLost));
}

#[test]
fn a_journal_of_a_thousand_records_stays_small_and_moves_each_once() {
    let (mut journal, mut stored) = (Journal::default(), Segments::new());
    let mut moved = 0;
    for at in 0..1000 {
        let (seq, done) = (journal.next_seq(), journal.next_seq());
        let mut record = record(&format!("step-{at}"), 1, seq, Some(done));
        record.input_digest = Some(signoff_api::Digest::of_bytes(b"input"));
        record.response = Some(signoff_api::Json(json!("x".repeat(if at < 256 { 1024 } else { 0 }))));
        journal.put(record);
        if at % 50 == 49 {
            let before: usize = stored.values().map(|records| records.len()).sum();
            journal = reread(&mut journal, &JournalLimits::default(), &mut stored);
            moved += stored.values().map(|records| records.len()).sum::<usize>() - before;
            let object = serde_json::to_vec(&status(&journal)).unwrap().len();
            assert!(object < 96 * 1024, "{object} bytes after {at} steps");
        }
    }
    assert_eq!(journal.records().len(), 1000);
    let held: i32 = journal.segments().iter().map(|segment| segment.records).sum();
    assert_eq!((usize::try_from(held).unwrap(), moved > 0), (moved, true));
}

#[test]
fn the_longest_journals_fit_into_the_maximum_number_of_segments() {
    let (mut journal, mut moved) = (Journal::default(), 0);
    for at in 0..30_000 {
        add(&mut journal, &format!("step-{at}"));
        if at % 8 == 7 {
            moved += journal
                .fold_finished(&JournalLimits::default())
                .unwrap()
                .iter()
                .map(|segment| segment.records.len())
                .sum::<usize>();
        }
    }
    let most = signoff_api::journal::MAX_SEGMENTS;
    assert!(journal.segments().len() < most, "{} segments hold {moved} records", journal.segments().len());
    assert!(moved > 29_000, "{moved} records moved");
}

proptest! {
    #[test]
    fn a_journal_in_segments_is_the_same_journal(
        // The activity, which begins if it is new and finishes otherwise, and the number of writes in between.
        events in prop::collection::vec((0_usize..24, 0_usize..4), 1..80),
        steps in 500_usize..3000,
        segment in 200_usize..1500,
    ) {
        println!("tried: 1 property cases");
        let room = JournalLimits { steps, segment, largest: segment * 4 };
        let (mut whole, mut parted) = (Journal::default(), Journal::default());
        let mut stored = Segments::new();
        for (activity, written) in events {
            let path = format!("step-{activity}");
            let (done, other) = (whole.next_seq(), parted.next_seq());
            prop_assert_eq!(done, other);
            let next = match whole.get(&path, 1) {
                Some(begun) => record(&path, 1, begun.seq, Some(done)),
                None => record(&path, 1, done, None),
            };
            prop_assert_eq!(whole.put(next.clone()), parted.put(next));
            if written == 0 {
                parted = reread(&mut parted, &room, &mut stored);
            }
            prop_assert_eq!(whole.records(), parted.records());
        }
        let parted = reread(&mut parted, &room, &mut stored);
        prop_assert_eq!(whole.seq(), parted.seq());
        prop_assert_eq!(whole.records(), parted.records());
        for record in whole.records() {
            prop_assert_eq!(parted.get(&record.path, record.attempt), Some(record));
            let stands = parted.steps().iter().any(|r| r.path == record.path);
            prop_assert!(stands || record.phase.is_end(), "{} is open and moved out", record.path);
        }
        let held: i32 = parted.segments().iter().map(|s| s.records).sum();
        prop_assert_eq!(usize::try_from(held).unwrap() + parted.steps().len(), whole.records().len(), "none is in two places");
    }
}

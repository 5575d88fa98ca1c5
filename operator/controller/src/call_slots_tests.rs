//! Tests of slots: the call that gets a free slot, and the limit that delays a call.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, sync::Arc};

use super::*;

fn slots(total: usize, per_namespace: usize, per_workflow: usize, per_host: usize) -> Arc<CallSlots> {
    slots_with(CallLimits { total, per_namespace, per_workflow, per_host })
}

fn slots_with(limits: CallLimits) -> Arc<CallSlots> {
    Arc::new(CallSlots::new(limits, FairBudget::new(1000), 100))
}

/// Returns the call `seq` of a Workflow, to a host of its own.
fn ticket(namespace: &str, workflow: &str, seq: i64) -> CallTicket {
    CallTicket {
        seq: Seq::from(seq),
        call: (format!("step-{seq}"), 1),
        workflow: Name::new(namespace, workflow),
        run: format!("uid of {namespace}/{workflow}").into(),
        host: Some(format!("{workflow}.test").into()),
        bytes: CallBytes::default(),
    }
}

fn with_bytes(request: usize, answer: usize, ticket: CallTicket) -> CallTicket {
    CallTicket { bytes: CallBytes { request, answer }, ..ticket }
}

fn with_host(host: &str, ticket: CallTicket) -> CallTicket {
    CallTicket { host: Some(host.into()), ..ticket }
}

#[track_caller]
fn take_slot(slots: &Arc<CallSlots>, ticket: &CallTicket) -> CallSlot {
    slots.acquire(ticket.clone()).unwrap_or_else(|wait| panic!("{ticket:?}: {wait:?}"))
}

#[track_caller]
fn expect_wait(slots: &Arc<CallSlots>, ticket: &CallTicket) -> CallWait {
    slots.acquire(ticket.clone()).map_or_else(|wait| wait, |_| panic!("{ticket:?} runs"))
}

fn take_granted(slots: &CallSlots) -> Vec<String> {
    slots.take_granted().iter().map(ToString::to_string).collect()
}

#[test]
fn each_limit_delays_only_the_calls_that_it_limits() {
    let slots = slots(6, 4, 2, 3);
    let _a = [1, 2].map(|seq| take_slot(&slots, &ticket("a", "one", seq)));
    assert_eq!(expect_wait(&slots, &ticket("a", "one", 3)), CallWait::Workflow(2));
    let _b = [1, 2].map(|seq| take_slot(&slots, &with_host("shared.test", ticket("a", "two", seq))));
    assert_eq!(expect_wait(&slots, &ticket("a", "three", 1)), CallWait::Namespace(4));
    let _c = take_slot(&slots, &with_host("shared.test", ticket("b", "one", 1)));
    assert_eq!(
        expect_wait(&slots, &with_host("shared.test", ticket("b", "one", 2))),
        CallWait::Host("shared.test".into(), 3)
    );
    assert_eq!(expect_wait(&slots, &ticket("b", "one", 3)), CallWait::Share(1));
    let _d = take_slot(&slots, &ticket("c", "one", 1));
    assert_eq!(expect_wait(&slots, &ticket("d", "four", 1)), CallWait::Total(6));
    assert_eq!(slots.levels(), (0, 5));
    assert_eq!(take_granted(&slots), <[&str; 0]>::default(), "a call that got its slot at once wakes nothing");
}

#[test]
fn a_scripted_model_has_no_host_and_counts_for_the_other_limits() {
    let slots = slots(9, 9, 2, 1);
    let scripted = |seq| CallTicket { host: None, ..ticket("a", "one", seq) };
    let _running = [1, 2].map(|seq| take_slot(&slots, &scripted(seq)));
    assert_eq!(expect_wait(&slots, &scripted(3)), CallWait::Workflow(2));
}

#[test]
fn a_namespace_with_many_calls_delays_others_by_one_round() {
    let slots = slots(4, 4, 4, 99);
    let mut running: Vec<_> = (1..=4).map(|seq| take_slot(&slots, &ticket("crowd", "big", seq))).collect();
    for seq in 5..=1000 {
        expect_wait(&slots, &ticket("crowd", "big", seq));
    }
    expect_wait(&slots, &ticket("other", "small", 1));
    expect_wait(&slots, &ticket("third", "small", 1));
    let mut order = Vec::new();
    for _ in 0..3 {
        drop(running.pop());
        order.extend(take_granted(&slots));
    }
    let order: BTreeSet<_> = order.into_iter().collect();
    assert_eq!(order, ["crowd/big", "other/small", "third/small"].map(str::to_owned).into());
}

#[test]
fn a_namespace_that_always_asks_gets_every_other_slot() {
    let slots = slots(1, 1, 1, 9);
    let mut running = Some(take_slot(&slots, &ticket("crowd", "big", 1)));
    for seq in 2..100 {
        expect_wait(&slots, &ticket("crowd", "big", seq));
    }
    let (mut eager, mut crowd, mut next) = (0, 0, 2);
    for seq in 1..=20 {
        let again = ticket("eager", "w", seq);
        let known = slots.acquire(again.clone()).is_err();
        assert!(known);
        running.take();
        running = match take_granted(&slots).as_slice() {
            [name] if name == "eager/w" => {
                eager += 1;
                Some(take_slot(&slots, &again))
            }
            [_] => {
                crowd += 1;
                next += 1;
                Some(take_slot(&slots, &ticket("crowd", "big", next - 1)))
            }
            other => panic!("{other:?}"),
        };
        slots.forget(&Name::new("eager", "w"));
    }
    assert_eq!((eager, crowd), (10, 10));
}

#[test]
fn workflows_of_one_namespace_take_turns_too() {
    let slots = slots(1, 1, 1, 9);
    let running = take_slot(&slots, &ticket("a", "big", 1));
    for seq in 2..50 {
        expect_wait(&slots, &ticket("a", "big", seq));
    }
    expect_wait(&slots, &ticket("a", "small", 1));
    drop(running);
    assert_eq!(take_granted(&slots), ["a/big"], "the first turn");
    drop(take_slot(&slots, &ticket("a", "big", 2)));
    assert_eq!(take_granted(&slots), ["a/small"]);
}

#[test]
fn a_reserved_slot_is_not_given_to_another_call() {
    let slots = slots(1, 1, 1, 9);
    let running = take_slot(&slots, &ticket("a", "one", 1));
    expect_wait(&slots, &ticket("b", "one", 1));
    drop(running);
    assert_eq!(expect_wait(&slots, &ticket("c", "one", 1)), CallWait::Total(1));
    let _running = take_slot(&slots, &ticket("b", "one", 1));
}

#[test]
fn a_reserved_slot_that_is_not_claimed_goes_to_the_next_call() {
    let slots = slots(1, 1, 1, 9);
    let running = take_slot(&slots, &ticket("a", "one", 1));
    expect_wait(&slots, &ticket("b", "one", 1));
    expect_wait(&slots, &ticket("c", "one", 1));
    drop(running);
    assert_eq!(take_granted(&slots), ["b/one"]);
    slots.forget(&Name::new("b", "one"));
    assert_eq!(take_granted(&slots), ["c/one"]);
    slots.retain(&Name::new("c", "one"), |ticket| ticket.seq == Seq::from(1));
    drop(take_slot(&slots, &ticket("c", "one", 1)));
    assert_eq!(slots.levels(), (1, 0));
}

#[test]
fn no_state_is_kept_of_finished_calls() {
    let slots = slots(2, 2, 2, 4);
    drop([1, 2].map(|seq| take_slot(&slots, &ticket("a", "one", seq))));
    let inner = slots.lock();
    assert!(inner.taken.namespaces.is_empty() && inner.taken.runs.is_empty() && inner.taken.hosts.is_empty());
    assert!(inner.waiting.is_empty() && inner.reserved.is_empty());
}

#[tokio::test]
async fn an_aborted_task_frees_its_slot() {
    let slots = slots(1, 1, 1, 1);
    let slot = take_slot(&slots, &ticket("a", "one", 1));
    expect_wait(&slots, &ticket("b", "one", 1));
    let task = tokio::spawn(async move {
        let _slot = slot;
        std::future::pending::<()>().await;
    });
    task.abort();
    slots.granted().await;
    assert_eq!(take_granted(&slots), ["b/one"]);
}

#[test]
fn every_spelling_of_a_host_is_one_host() {
    for url in ["https://Models.Example.com/v1", "http://models.example.com:8080", "https://u:p@models.example.com./x"]
    {
        assert_eq!(host_of_url(url).as_deref(), Some("models.example.com"), "{url}");
    }
    assert_eq!(host_of_url("no url"), None);
}

#[test]
fn default_limits_leave_room_for_others_and_are_never_zero() {
    assert_eq!(CallLimits::of_total(64), CallLimits { total: 64, per_namespace: 32, per_workflow: 16, per_host: 48 });
    assert_eq!(CallLimits::of_total(0), CallLimits { total: 1, per_namespace: 1, per_workflow: 1, per_host: 1 });
}

/// Starts calls of a namespace to one host until a call has to wait. Returns the slots of the started calls.
fn fill(slots: &Arc<CallSlots>, namespace: &str, host: &str) -> Vec<CallSlot> {
    let tickets = (0..1000).map(|n| with_host(host, ticket(namespace, &format!("w{n}"), 1)));
    tickets.map_while(|ticket| slots.acquire(ticket).ok()).collect()
}

#[test]
fn the_first_call_of_a_namespace_to_a_busy_host_starts_at_once() {
    let slots = slots_with(CallLimits::default());
    let mut crowds = Vec::new();
    for crowd in 0..10 {
        crowds.push(fill(&slots, &format!("crowd-{crowd}"), "models.test"));
        let _victim = take_slot(&slots, &with_host("models.test", ticket("victim", "w", 1)));
    }
    let counts: Vec<_> = crowds.iter().map(Vec::len).collect();
    assert_eq!(counts[..4], [24, 8, 3, 1], "one alone has half of the slots to a host");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let more = with_host("models.test", ticket("crowd-0", "more", 1));
    assert_eq!(expect_wait(&slots, &more), CallWait::HostShare("models.test".into(), 24));
    assert!(
        expect_wait(&slots, &more)
            .message("crowd-0")
            .contains("has 24 calls to models.test in flight, which is its share")
    );
}

#[test]
fn namespaces_that_call_all_the_time_get_equal_shares() {
    let slots = slots_with(CallLimits::default());
    let mut running: BTreeMap<String, Vec<CallSlot>> = BTreeMap::new();
    let names: Vec<String> = (0..4).map(|n| format!("ns-{n}")).collect();
    for name in &names {
        running.insert(name.clone(), fill(&slots, name, "models.test"));
    }
    // Each call ends after some turns, and its namespace queues another one at once.
    for round in 0..400 {
        let name = names[round % names.len()].as_str();
        drop(running.get_mut(name).unwrap().pop());
        for name in &names {
            let ticket = with_host("models.test", ticket(name, &format!("again-{round}"), 1));
            if let Ok(slot) = slots.acquire(ticket.clone()) {
                running.get_mut(name).unwrap().push(slot);
            }
            slots.forget(&ticket.workflow);
        }
    }
    let shares: Vec<_> = names.iter().map(|name| running[name].len()).collect();
    assert!(shares.iter().all(|share| (7..=8).contains(share)), "{shares:?}");
}

#[test]
fn a_call_that_waits_for_memory_delays_no_small_call() {
    let slots = slots_with(CallLimits::default());
    let first = take_slot(&slots, &with_bytes(300, 300, ticket("a", "one", 1)));
    assert_eq!(slots.bytes.taken(), 500, "100 are its own");
    let second = with_bytes(200, 0, ticket("b", "one", 1));
    let _second = take_slot(&slots, &second);
    let third = with_bytes(260, 140, ticket("c", "one", 1));
    assert_eq!(expect_wait(&slots, &third), CallWait::Memory(300));
    let _small = take_slot(&slots, &with_bytes(60, 40, ticket("c", "two", 1)));
    drop(first);
    slots.on_bytes_freed();
    assert_eq!(take_granted(&slots), ["c/one"]);
    let _third = take_slot(&slots, &third);
    slots.retain(&Name::new("c", "one"), |_| true);
    assert_eq!(slots.bytes.taken(), 400);
}

#[test]
fn an_answer_takes_more_memory_while_it_is_read() {
    let slots = slots_with(CallLimits::default());
    let call = take_slot(&slots, &with_bytes(50, 0, ticket("a", "one", 1)));
    assert!(call.has_room_for(50) && slots.bytes.taken() == 0, "its own");
    assert!(call.has_room_for(450) && slots.bytes.taken() == 400);
    assert!(!call.has_room_for(1000) && slots.bytes.taken() == 400);
    let beside = take_slot(&slots, &with_bytes(50, 0, ticket("b", "one", 1)));
    assert!(beside.has_room_for(150));
    drop((call, beside));
    assert_eq!(slots.bytes.taken(), 0);
}

#[test]
fn a_slot_that_is_not_claimed_returns_its_bytes() {
    let slots = slots_with(CallLimits::default());
    let first = take_slot(&slots, &with_bytes(600, 0, ticket("a", "one", 1)));
    let waiting = with_bytes(600, 0, ticket("b", "one", 1));
    assert_eq!(expect_wait(&slots, &waiting), CallWait::Memory(500));
    drop(first);
    slots.on_bytes_freed();
    assert_eq!((take_granted(&slots), slots.bytes.taken()), (vec!["b/one".to_owned()], 500));
    slots.forget(&Name::new("b", "one"));
    assert_eq!(slots.bytes.taken(), 0);
}

#[test]
fn an_answer_has_room_for_its_reserved_bytes_above_the_share() {
    // A namespace can take 500 of the 1000 bytes. The call reserves 600 bytes for its answer, and its answer of 600
    // bytes is accepted: otherwise the call would fail and be repeated for ever.
    let slots = slots(9, 9, 9, 9);
    let turn = take_slot(&slots, &with_bytes(400, 600, ticket("a", "one", 1)));
    assert!(turn.has_room_for(200) && turn.has_room_for(600));
    assert!(!turn.has_room_for(601), "more than was reserved");
}

#[test]
fn a_small_call_starts_beside_an_uncommitted_result() {
    let slots = slots(40, 20, 20, 40);
    let hostile: Vec<_> = ["h", "i", "j", "k"]
        .iter()
        .flat_map(|name| (0..9).map(|seq| with_bytes(0, 350, ticket(name, "big", seq))))
        .filter_map(|ticket| slots.acquire(ticket).ok())
        .collect();
    assert!(slots.bytes.taken() >= 750, "{}", slots.bytes.taken());
    let _result = slots.bytes.note(&"honest".into(), 20);
    let _call = take_slot(&slots, &ticket("honest", "small", 1));
    drop(hostile);
}

#[test]
fn waiting_calls_above_their_share_do_not_slow_down_changes() {
    let slots = slots(40, 20, 20, 40);
    let names: Vec<_> = (0..10).map(|number| format!("hostile-{number}")).collect();
    let mut running = Vec::new();
    for workflow in 0..500 {
        for name in &names {
            for seq in 0..20 {
                running.extend(slots.acquire(ticket(name, &format!("w-{workflow}"), seq)).ok());
            }
        }
    }
    let (_, waiting) = slots.levels();
    assert!(waiting > 99_000, "{waiting}");
    let began = std::time::Instant::now();
    for number in 0..1000 {
        slots.forget(&Name::new("honest", &number.to_string()));
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_large_call_is_not_starved_by_small_calls_of_others() {
    let slots = slots_with(CallLimits::default());
    let small = |namespace: usize, seq: i64| with_bytes(160, 0, ticket(&format!("small-{namespace}"), "one", seq));
    let mut running = std::collections::VecDeque::new();
    for round in 0..20 {
        (0..10).for_each(|namespace| running.extend(slots.acquire(small(namespace, round))));
    }
    let large = with_bytes(400, 0, ticket("victim", "one", 1));
    assert_eq!(expect_wait(&slots, &large), CallWait::Memory(300));
    let mut ended = 0;
    let granted = loop {
        running.pop_front();
        ended += 1;
        slots.on_bytes_freed();
        if let Ok(slot) = slots.acquire(large.clone()) {
            break slot;
        }
        assert!(ended < 100, "it waits for ever");
        (0..10).for_each(|namespace| running.extend(slots.acquire(small(namespace, 100 + ended))));
    };
    assert!(ended <= 10, "{ended} calls of others ended before it");
    drop(granted);
    // A call that is dropped delays no other.
    (0..10).for_each(|namespace| running.extend(slots.acquire(small(namespace, 1000))));
    assert_eq!(expect_wait(&slots, &with_bytes(900, 0, ticket("victim", "one", 2))), CallWait::Memory(800));
    assert!(slots.lock().held_back.is_some());
    let _little = take_slot(&slots, &with_bytes(120, 0, ticket("another", "one", 1)));
    slots.forget(&Name::new("victim", "one"));
    assert_eq!(slots.lock().held_back, None);
}

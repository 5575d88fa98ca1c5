//! The tables: runs beside bare Pods, and requests by verb and resource.

use std::time::Duration;

use super::{Level, Measured};
use crate::audit::{Sort, Tally, count, sort};
use crate::crowd::percentile;
use crate::table::{hundredths, machine, milliseconds, table, tenths};

/// Renders all tables.
pub(super) fn render(measured: &Measured, debug: bool) -> String {
    let build = if debug { "a debug build: these numbers say little about what is shipped" } else { "a release build" };
    let mut parts = vec![format!("\nOne Pod between two set steps, on {}; the operator is {build}.", machine())];
    parts.extend(measured.levels.iter().map(render_level));
    parts.push(render_requests(measured));
    parts.join("\n\n")
}

fn render_level(level: &Level) -> String {
    let Level { clients, ours, bare, .. } = level;
    let head = [
        format!("{clients} at once, {} of each", ours.all.len()),
        "a run, p50 ms".into(),
        "p99 ms".into(),
        "bare, p50 ms".into(),
        "p99 ms".into(),
        "p50".into(),
        "p99".into(),
    ];
    let rows: [(&str, &[Duration], &[Duration]); 4] = [
        ("step before recorded → Pod made (bare: asked → made)", &ours.made, &bare.made),
        ("Pod made → container ended", &ours.ran, &bare.ran),
        ("container ended → next step recorded (bare: → log read)", &ours.noted, &bare.noted),
        ("asked → all of it", &ours.all, &bare.all),
    ];
    let rows = rows.map(|(name, ours, bare)| {
        let of = |times: &[Duration], share| milliseconds(percentile(times, share));
        let [a, b, c, d] = [of(ours, 0.5), of(ours, 0.99), of(bare, 0.5), of(bare, 0.99)];
        let ratio = |ours: f64, bare: f64| format!("{:.2}×", ours / bare);
        (name, vec![tenths(a), tenths(b), tenths(c), tenths(d), ratio(a, c), ratio(b, d)])
    });
    format!(
        "{}\noperator CPU {:.1} ms a run; everybody on this machine used {:.2} processors meanwhile",
        table(&head, rows),
        milliseconds(level.cpu),
        level.busy,
    )
}

fn render_requests(measured: &Measured) -> String {
    let runs = measured.counted as f64;
    let of = |tally: &Tally, what: &str| tally.get(what).copied().unwrap_or_default() as f64 / runs;
    let row = |with: f64, without: f64| vec![hundredths(with), hundredths(without), hundredths(with - without)];
    let mut all: Vec<&String> = measured.with.keys().chain(measured.without.keys()).collect();
    all.sort();
    all.dedup();
    let asked = all.into_iter().filter(|what| sort(what) != Sort::Upkeep);
    let mut rows: Vec<_> =
        asked.map(|what| (what.as_str(), row(of(&measured.with, what), of(&measured.without, what)))).collect();
    let sum = |tally: &Tally| {
        [Sort::State, Sort::Event, Sort::Read].map(|sort| count(tally, sort)).iter().sum::<usize>() as f64 / runs
    };
    rows.push(("all", row(sum(&measured.with), sum(&measured.without))));
    let head = ["requests of the operator a run", "with the Pod", "without", "a Pod step"].map(str::to_owned);
    format!(
        "{}\nby the API server's audit log of {} runs each; watches and the Lease left out",
        table(&head, rows),
        measured.counted
    )
}

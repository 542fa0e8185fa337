//! Every event in every phase, as a drawing: what it leads to, and what is answered.

use tollgate_core::breaker::{Answer, Event, Health, Mode, Outcome, Phase, Record, Report};
use tollgate_core::units::Micros;

use crate::stand::{
    EPOCH, NOW, SECOND, closed, counts, decide, half_open, open, overridden, ramping, report, seconds,
    settle, step,
};

/// Columns: closed; open; open whose end has come; half-open with no lease, with lease 1, with leases 1 and
/// 2 (all there are), with lease 1 and one success to go; ramping, and at the ramp's end; forced open,
/// forced closed, metrics only, and the three at their end.
///
/// Cells: the phase it leads to (Closed, Open, HalfOpen, Ramping), in capitals if an epoch began, and
/// the answer (done, late, granted, full, moot).
const DRAWN: &str = "
               closed open over none busy full last ramp top  fo   fc   mo   fo'  fc'  mo'
look           cd     od   Hd   hd   hd   hd   hd   rd   Cd   od   cd   cd   Hd   Cd   Cd
well           cd     od   Hl   hd   hd   hd   hd   rd   Cl   od   cd   cd   Hl   Cl   Cl
failing        Od     od   Hl   hd   hd   hd   hd   Od   Cl   od   cd   cd   Hl   Cl   Cl
ratio          Od     od   Hl   hd   hd   hd   hd   Od   Cl   od   cd   cd   Hl   Cl   Cl
slow           Od     od   Hl   hd   hd   hd   hd   Od   Cl   od   cd   cd   Hl   Cl   Cl
hint           Od     od   Hl   hd   hd   hd   hd   Od   Cl   od   cd   cd   Hl   Cl   Cl
few            cd     od   Hl   hd   hd   hd   hd   Od   Cl   od   cd   cd   Hl   Cl   Cl
old-failing    cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
old-hint       cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
lease-1        cm     om   Hg   hg   hg   hg   hg   rm   Cm   om   cm   cm   Hg   Cm   Cm
lease-9        cm     om   Hg   hg   hg   hf   hg   rm   Cm   om   cm   cm   Hg   Cm   Cm
succeed-1      cl     ol   Hl   hl   hd   hd   Rd   rl   Cl   ol   cl   cl   Hl   Cl   Cl
fail-1         cl     ol   Hl   hl   Od   Od   Od   rl   Cl   ol   cl   cl   Hl   Cl   Cl
slow-1         cl     ol   Hl   hl   Od   Od   Od   rl   Cl   ol   cl   cl   Hl   Cl   Cl
succeed-9      cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
fail-9         cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
old-succeed-1  cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
old-fail-1     cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
return-1       cl     ol   Hl   hl   hd   hd   hd   rl   Cl   ol   cl   cl   Hl   Cl   Cl
return-9       cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
old-return-1   cl     ol   Hl   hl   hl   hl   hl   rl   Cl   ol   cl   cl   Hl   Cl   Cl
force-open     Od     Od   Od   Od   Od   Od   Od   Od   Od   Od   Od   Od   Od   Od   Od
force-closed   Cd     Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd
metrics        Cd     Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd   Cd
lift           cd     od   Hd   hd   hd   hd   hd   rd   Cd   Hd   Cd   Cd   Hd   Cd   Cd
";

fn record(name: &str) -> Record {
    match name {
        "closed" => closed(),
        "open" => open(SECOND),
        "over" => open(Micros::ZERO),
        "none" => half_open(0, &[]),
        "busy" => half_open(0, &[1]),
        "full" => half_open(0, &[1, 2]),
        "last" => half_open(1, &[1]),
        "ramp" => ramping(seconds(2)),
        "top" => ramping(seconds(10)),
        "fo" => overridden(Mode::ForcedOpen, SECOND),
        "fc" => overridden(Mode::ForcedClosed, SECOND),
        "mo" => overridden(Mode::MetricsOnly, SECOND),
        "fo'" => overridden(Mode::ForcedOpen, Micros::ZERO),
        "fc'" => overridden(Mode::ForcedClosed, Micros::ZERO),
        "mo'" => overridden(Mode::MetricsOnly, Micros::ZERO),
        other => panic!("no record is named {other}"),
    }
}

fn event(name: &str) -> Event {
    let hint = |epoch| {
        let (counts, hint) = (counts(0, 1, 0), Some(seconds(7)));
        Event::Report(Report { reporter: 1, epoch, counts, health: Health::Well, hint })
    };
    match name {
        "look" => Event::Look,
        "well" => report(1, EPOCH, counts(100, 1, 1), Health::Well),
        "failing" => report(1, EPOCH, counts(97, 3, 0), Health::Failing),
        "ratio" => report(1, EPOCH, counts(5, 5, 0), Health::Troubled),
        "slow" => report(1, EPOCH, counts(5, 0, 5), Health::Troubled),
        "hint" => hint(EPOCH),
        // Too few to judge by, but not on the first step of a ramp.
        "few" => report(1, EPOCH, counts(0, 1, 0), Health::Troubled),
        "old-failing" => report(1, EPOCH - 1, counts(0, 100, 0), Health::Failing),
        "old-hint" => hint(EPOCH - 1),
        "lease-1" => Event::Lease { token: 1 },
        "lease-9" => Event::Lease { token: 9 },
        "succeed-1" => settle(1, EPOCH, Outcome::Success),
        "fail-1" => settle(1, EPOCH, Outcome::Failure),
        "slow-1" => settle(1, EPOCH, Outcome::Slow),
        "succeed-9" => settle(9, EPOCH, Outcome::Success),
        "fail-9" => settle(9, EPOCH, Outcome::Failure),
        "old-succeed-1" => settle(1, EPOCH - 1, Outcome::Success),
        "old-fail-1" => settle(1, EPOCH - 1, Outcome::Failure),
        "return-1" => Event::Return { token: 1, epoch: EPOCH },
        "return-9" => Event::Return { token: 9, epoch: EPOCH },
        "old-return-1" => Event::Return { token: 1, epoch: EPOCH - 1 },
        "force-open" => decide(Mode::ForcedOpen),
        "force-closed" => decide(Mode::ForcedClosed),
        "metrics" => decide(Mode::MetricsOnly),
        "lift" => Event::Lift,
        other => panic!("no event is named {other}"),
    }
}

fn letter(phase: Phase) -> char {
    match phase {
        Phase::Closed { .. } => 'c',
        Phase::Open { .. } => 'o',
        Phase::HalfOpen { .. } => 'h',
        Phase::Ramping { .. } => 'r',
    }
}

fn cell(before: &Record, after: &Record, answer: Answer) -> String {
    let phase = letter(after.phase);
    let phase = if after.epoch == before.epoch { phase } else { phase.to_ascii_uppercase() };
    let answer = match answer {
        Answer::Done => 'd',
        Answer::Late => 'l',
        Answer::Granted { .. } => 'g',
        Answer::Full { .. } => 'f',
        Answer::Moot => 'm',
    };
    format!("{phase}{answer}")
}

#[test]
fn every_event_in_every_phase_does_what_is_drawn() {
    let mut lines = DRAWN.trim().lines();
    let names: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    let mut cells = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let row = words.next().expect("an event");
        for (column, drawn) in names.iter().zip(words) {
            let before = record(column);
            let mut after = before.clone();
            let done = step(&mut after, &event(row));
            assert_eq!(cell(&before, &after, done.answer), drawn, "{row} in {column}: {done:?}");
            check(row, column, &before, &after, &done.transitions);
            cells += 1;
        }
    }
    assert_eq!(cells, 25 * 15, "no cell is left out");
}

/// What holds of every cell.
fn check(
    row: &str,
    column: &str,
    before: &Record,
    after: &Record,
    transitions: &[tollgate_core::breaker::Transition],
) {
    let place = format!("{row} in {column}: {transitions:?}");
    // A phase that changed began an epoch, and was told of.
    if letter(before.phase) != letter(after.phase) {
        assert!(after.epoch > before.epoch, "{place}");
    }
    assert!(after.epoch >= before.epoch, "{place}");
    assert!(after.epoch == before.epoch || after.epoch >= NOW.0, "never an epoch of before: {place}");
    assert_eq!(
        after.epoch != before.epoch,
        transitions.iter().any(|one| one.epoch != before.epoch),
        "{place}"
    );
    assert!(transitions.len() <= 2, "{place}");
    // Metrics only tells what would have been, and nobody else tells of what is not.
    for told in transitions.iter().filter(|told| told.epoch == before.epoch) {
        assert_eq!((column, told.from, told.to), ("mo", told.from, told.from), "{place}");
    }
    // What came too late left nothing behind but what time did.
    if row.starts_with("old-") || row.ends_with("-9") && row != "lease-9" {
        let mut looked = before.clone();
        step(&mut looked, &Event::Look);
        assert_eq!(&looked, after, "{place}");
    }
    // A new epoch begins with nothing; what was leased before it means nothing.
    if after.epoch != before.epoch && !row.starts_with("lease") {
        assert!(after.leases.is_empty() && after.window.buckets.is_empty(), "{place}");
        assert!(after.reporters.values().all(|one| one.health == Health::Well), "{place}");
    }
    // Open before its end is left only by a person's decision.
    if letter(before.phase) == 'o' && letter(after.phase) != 'o' {
        let Phase::Open { until, .. } = before.phase else { unreachable!("it is open") };
        assert!(until <= NOW || matches!(row, "force-closed" | "metrics" | "lift"), "{place}");
    }
}

//! Every kind of failover so many times, as the tables of `docs/failure.md`.

use std::time::Duration;

use crate::clients::{CAPACITY, DEADLINE, RATE};
use crate::partition::{self, CUT_FOR, Fence, Parted};
use crate::replaced::{DOWN_AFTER, NODE_TIMEOUT, Replaced};
use crate::round::Round;

/// Decisions come from Redis again so soon after another server was promoted, where the machine lets them.
const BACK_WITHIN: Duration = Duration::from_secs(2);

/// How often a round is begun, at most.
const ROUND_TRIES: usize = 3;

/// What is waited for before the fault, at most: Sentinels look about once a second, and a fault may meet them anywhere.
const WAIT_MAX_MS: u64 = 1000;

#[expect(clippy::disallowed_methods, reason = "a campaign is told by its environment what to repeat")]
fn told(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn ms(span: Duration) -> String {
    format!("{} ms", span.as_millis())
}

/// The median and the worst.
fn spread<T: Copy + PartialOrd>(
    rounds: &[Round],
    figure: impl Fn(&Round) -> T,
    show: impl Fn(T) -> String,
) -> String {
    let mut figures: Vec<T> = rounds.iter().map(figure).collect();
    figures.sort_by(|a, b| a.partial_cmp(b).expect("figures are numbers"));
    match (figures.get(figures.len() / 2), figures.last()) {
        (Some(median), Some(worst)) => format!("{} / {}", show(*median), show(*worst)),
        _ => "–".to_owned(),
    }
}

fn show(round: &Round) -> String {
    let lost = round.lost.map_or("?".to_owned(), |lost| format!("{lost:.0}"));
    format!(
        "r·T + {:.0} of r·T + {:.0} (lost {lost}, S {}), F {}, unavailable {}, back {}, longest {} (machine {})",
        round.excess,
        round.bound(),
        ms(round.both),
        round.by_fallback,
        ms(round.unavailable),
        ms(round.back),
        ms(round.longest),
        ms(round.stall),
    )
}

/// The cells that both tables begin with.
fn cells(name: &str, rounds: &[Round]) -> String {
    let whole = |figure: f64| format!("{figure:.0}");
    let nearest = rounds.iter().map(|round| round.bound() - round.excess).fold(f64::INFINITY, f64::min);
    let lost: Vec<f64> = rounds.iter().filter_map(|round| round.lost).collect();
    let lost_rounds = lost.iter().filter(|lost| **lost > 0.0).count();
    let lost = match lost.iter().copied().reduce(f64::max) {
        Some(most) => format!("{lost_rounds} of {}, {most:.0} tokens", lost.len()),
        None => "not told apart".to_owned(),
    };
    format!(
        "| {name} | {} | {} | {nearest:.0} | {lost} | {} | {} |",
        spread(rounds, |round| round.excess, whole),
        spread(rounds, Round::bound, whole),
        spread(rounds, |round| round.both, ms),
        spread(rounds, |round| round.by_fallback, |count| count.to_string()),
    )
}

fn longest(rounds: &[Round]) -> String {
    let longest = spread(rounds, |round| round.longest, ms);
    format!("{longest} (machine {})", ms(rounds.iter().map(|round| round.stall).max().unwrap_or_default()))
}

fn row(name: &str, rounds: &[Round]) -> String {
    format!(
        "{} {} | {} | {} |",
        cells(name, rounds),
        spread(rounds, |round| round.unavailable, ms),
        spread(rounds, |round| round.back, ms),
        longest(rounds),
    )
}

fn parted_row(name: &str, parted: Vec<Parted>) -> String {
    let of = |figure: fn(&Parted) -> Duration| {
        let mut figures: Vec<Duration> = parted.iter().map(figure).collect();
        figures.sort();
        let (median, worst) = (figures[figures.len() / 2], figures[figures.len() - 1]);
        format!("{} / {}", ms(median), ms(worst))
    };
    let (away, back) = (of(|parted| parted.old_side_unavailable), of(|parted| parted.old_side_back));
    let rounds: Vec<Round> = parted.into_iter().map(|parted| parted.round).collect();
    format!(
        "{} {} | {} | {away} | {back} | {} |",
        cells(name, &rounds),
        spread(&rounds, |round| round.unavailable, ms),
        spread(&rounds, |round| round.back, ms),
        longest(&rounds),
    )
}

/// Promises that a round did not keep. One of them is the machine's if it stalled that long itself.
fn broken(name: &str, round: &Round) -> Vec<String> {
    let mut broken = Vec::new();
    if round.excess > round.bound() {
        broken.push(format!("{name}: {:.0} above r·T, bound {:.0}", round.excess, round.bound()));
    }
    if round.back > BACK_WITHIN + round.stall {
        broken.push(format!("{name}: back {:?} after the promotion", round.back));
    }
    broken
}

#[expect(clippy::print_stdout, reason = "a campaign says what it does")]
/// A round to its end. Where the servers did not get that far themselves (Sentinels that elect nobody on a machine
/// that stalls them), it is made again, and said.
async fn whole<T: Send + 'static, F>(mut round: impl FnMut() -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
{
    for _ in 1..ROUND_TRIES {
        match tokio::spawn(round()).await {
            Ok(round) => return round,
            Err(ended) => println!("a round did not come to its end, and is made again: {ended}"),
        }
    }
    round().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: a minute and a half for every round"]
async fn campaign() {
    let (seed, rounds) = (told("TOLLGATE_SEED", 1), told("TOLLGATE_ROUNDS", 20));
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut wait = || Duration::from_millis(rng.u64(..WAIT_MAX_MS));
    println!(
        "{rounds} rounds of each, 3 clients, C = {CAPACITY}, r = {RATE}/s, deadline {}, down-after {}, node timeout {}",
        ms(DEADLINE),
        ms(DOWN_AFTER),
        ms(NODE_TIMEOUT),
    );
    let (mut rows, mut parted_rows, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for kind in Replaced::ALL {
        let mut done = Vec::new();
        for number in 1..=rounds {
            let round = whole(|| kind.run(wait())).await;
            println!("{} {number}/{rounds}: {}", kind.name, show(&round));
            problems.extend(broken(kind.name, &round));
            done.push(round);
        }
        rows.push(row(kind.name, &done));
    }
    for (name, fence) in
        [("no fence", Fence::None), ("min-replicas-to-write 1, max-lag 2", Fence::MinReplicas)]
    {
        let mut done = Vec::new();
        for number in 1..=rounds {
            match whole(|| partition::run(fence, wait())).await {
                Ok(parted) => {
                    let (away, back) = (ms(parted.old_side_unavailable), ms(parted.old_side_back));
                    println!(
                        "partition, {name} {number}/{rounds}: {}, old side away {away}, back {back}",
                        show(&parted.round)
                    );
                    problems.extend(broken(name, &parted.round));
                    done.push(parted);
                }
                Err(refused) => {
                    let problem = format!(
                        "partition, {name}: not run, network namespaces are not permitted here: {refused}"
                    );
                    println!("{problem}");
                    problems.push(problem);
                    break;
                }
            }
        }
        if !done.is_empty() {
            parted_rows.push(parted_row(name, done));
        }
    }

    let common = "admitted beyond r·T | bound beyond r·T, without F | nearest to it | lost writes | S | F";
    println!("\nmedian / worst of {rounds} rounds");
    println!("\n| failover | {common} | unavailable | back after promotion | longest check |");
    println!("|---|---|---|---|---|---|---|---|---|---|\n{}", rows.join("\n"));
    println!("\npartition of {} s, a client on each side", CUT_FOR.as_secs());
    println!(
        "\n| fence | {common} | new side unavailable | new side back after promotion | old side unavailable | old side back after mending | longest check |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|\n{}", parted_rows.join("\n"));
    assert!(problems.is_empty(), "promises that were not kept: {problems:#?}");
}

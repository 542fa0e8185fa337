//! A child is heard, signalled, and never left behind.

use std::{os::unix::process::ExitStatusExt, path::Path, process::Command, time::Duration};

use testkit::{Child, free_port, process::Stream};

const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Child {
    Child::spawn(Command::new("sh").args(["-c", script]))
}

#[tokio::test]
async fn lines_of_both_outputs_are_heard_and_kept_apart() {
    let mut child = shell("echo one; echo two >&2; printf three");

    assert_eq!(child.wait_for_line(|line| line.starts_with("tw"), PATIENCE).await, "two");
    assert_eq!(child.wait_for_line(|line| line == "one", PATIENCE).await, "one");
    assert!(child.wait().await.success());
    assert_eq!(child.output_on(Stream::Stdout), "one\nthree\n");
    assert_eq!(child.output_on(Stream::Stderr), "two\n");
}

#[tokio::test]
async fn large_output_blocks_nobody() {
    let mut child = shell("yes | head -c 400000");

    assert!(child.wait().await.success());
    assert_eq!(child.output().len(), 400_000);
}

#[tokio::test]
#[should_panic(expected = "ended its output without the awaited line; it wrote:\nsomething else")]
async fn missing_line_is_reported_as_soon_as_the_child_ends() {
    shell("echo something else").wait_for_line(|line| line == "ready", PATIENCE).await;
}

#[tokio::test]
#[should_panic(expected = "ran for 20ms without the awaited line")]
async fn missing_line_is_reported_after_the_timeout() {
    shell("exec sleep 100").wait_for_line(|line| line == "ready", Duration::from_millis(20)).await;
}

#[tokio::test]
async fn terminated_child_may_say_goodbye() {
    let mut child = shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    child.wait_for_line(|line| line == "ready", PATIENCE).await;

    child.terminate();

    assert_eq!(child.wait().await.code(), Some(3));
    assert_eq!(child.output(), "ready\nbye\n");
}

#[tokio::test]
async fn killed_child_is_reaped() {
    let mut child = shell("exec sleep 100");
    assert_eq!(child.try_wait(), None);

    child.kill();

    assert_eq!(child.try_wait().and_then(|status| status.signal()), Some(9));
    assert!(!Path::new(&format!("/proc/{}", child.pid())).exists());
}

#[tokio::test]
async fn dropped_child_is_gone_also_when_paused() {
    let child = shell("exec sleep 100");
    let path = format!("/proc/{}", child.pid());
    child.pause();

    drop(child);

    assert!(!Path::new(&path).exists());
}

#[tokio::test]
async fn cpu_time_stands_still_while_paused() {
    let child = shell("while :; do :; done");
    testkit::eventually("the loop has used some time", || !child.cpu_time().is_zero()).await;

    child.pause();
    let paused_at = child.cpu_time();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(child.cpu_time(), paused_at);

    child.resume();
    testkit::eventually("the loop goes on", || child.cpu_time() > paused_at).await;
}

#[test]
#[should_panic(expected = "cannot start \"no-such-program\"")]
fn missing_program_is_named() {
    Child::spawn(&mut Command::new("no-such-program"));
}

#[test]
fn free_port_can_be_bound() {
    // Another process may win the race for one port, hardly for five.
    let is_bindable = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    assert!((0..5).any(|_| is_bindable(free_port())));
}

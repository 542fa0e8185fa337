//! The RESP door, byte by byte: what is answered, and in which words.
#![allow(clippy::format_collect, clippy::large_stack_arrays, reason = "a test may be wasteful")]
#![allow(clippy::unwrap_used, reason = "what a test cannot arrange, it cannot go on without")]

mod common;

use common::Server;
use common::resp::{Resp, command, five};

const RULES: &str = "rules: [{name: login, limit: 5/min, algorithm: sliding_log, key: \"{address}\", \
                     when: {path: /login}}, {name: api, limit: 2/h}]";

async fn started() -> (Server, Resp) {
    let server = Server::configured(RULES, &[]).await;
    let client = Resp::connect(server.resp).await;
    (server, client)
}

#[tokio::test]
async fn cl_throttle_answers_as_redis_cell_does() {
    let (_server, mut client) = started().await;
    // The example of redis-cell's own page.
    client.expect("CL.THROTTLE user123 15 30 60", &five([0, 16, 15, -1, 2])).await;
    client.expect("CL.THROTTLE user123 15 30 60 1", &five([0, 16, 14, -1, 4])).await;
    // Zero only looks, and a look changes nothing.
    client.expect("cl.throttle user123 15 30 60 0", &five([0, 16, 14, -1, 4])).await;
    client.expect("CL.THROTTLE user123 15 30 60 0", &five([0, 16, 14, -1, 4])).await;
    // More than there can ever be.
    client.expect("CL.THROTTLE user123 15 30 60 17", &five([1, 16, 14, -1, 4])).await;
    client.expect("CL.THROTTLE user123 15 30 60 9223372036854775807", &five([1, 16, 14, -1, 4])).await;
    // More than there is now.
    client.expect("CL.THROTTLE user123 15 30 60 15", &five([1, 16, 14, 2, 4])).await;
    client.expect("CL.THROTTLE user123 15 30 60 14", &five([0, 16, 0, -1, 32])).await;
    client.expect("CL.THROTTLE user123 15 30 60", &five([1, 16, 0, 2, 32])).await;
    // A negative quantity gives back, and never more than the bucket holds.
    client.expect("CL.THROTTLE user123 15 30 60 -2", &five([0, 16, 2, -1, 28])).await;
    client.expect("CL.THROTTLE user123 15 30 60 -99", &five([0, 16, 16, -1, 0])).await;
    client.expect("CL.THROTTLE nobody 15 30 60 -1", &five([0, 16, 16, -1, 0])).await;
    // One at once, and none.
    client.expect("CL.THROTTLE one 0 1 3600", &five([0, 1, 0, -1, 3600])).await;
    client.expect("CL.THROTTLE one 0 1 3600", &five([1, 1, 0, 3600, 3600])).await;
    client.expect("CL.THROTTLE none -1 1 60", &five([1, 0, 0, -1, 0])).await;
    client.expect("CL.THROTTLE none -5 1 60 0", &five([1, -4, 0, -1, 0])).await;
}

#[tokio::test]
async fn cl_throttle_refuses_in_redis_cells_words() {
    let (_server, mut client) = started().await;
    let usage = "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> \
                 [<quantity>]\r\n";
    for (line, error) in [
        ("CL.THROTTLE", usage),
        ("CL.THROTTLE k 1 2", usage),
        ("CL.THROTTLE k 1 2 3 4 5", usage),
        ("CL.THROTTLE k x y z", "-Cell error: Store error: Couldn't parse as integer: x\r\n"),
        ("CL.THROTTLE k 1 1.5 60", "-Cell error: Store error: Couldn't parse as integer: 1.5\r\n"),
        ("CL.THROTTLE k 1 2 60 \"\"", "-Cell error: Store error: Couldn't parse as integer: \r\n"),
        (
            "CL.THROTTLE k 1 2 9223372036854775808",
            "-Cell error: Store error: Couldn't parse as integer: 9223372036854775808\r\n",
        ),
        ("CL.THROTTLE k 1 0 60", "-Cell error: Store error: Zero rates are not supported\r\n"),
        ("CL.THROTTLE k 1 30 0", "-Cell error: Store error: Zero rates are not supported\r\n"),
        ("CL.THROTTLE k 1 -30 60", "-Cell error: Store error: Negative rates are not supported\r\n"),
        ("CL.THROTTLE k 1 30 -60", "-Cell error: Store error: Negative rates are not supported\r\n"),
        (
            "CL.THROTTLE k 9223372036854775807 1 1",
            "-Cell error: Store error: max_burst is too large: at most 4294967293\r\n",
        ),
        ("CL.THROTTLE \"\" 1 2 3", "-ERR key is empty: say whose limit it is\r\n"),
    ] {
        client.expect(line, error).await;
    }
    // None of it has spent anything.
    client.expect("CL.THROTTLE k 1 30 60 0", &five([0, 2, 2, -1, 0])).await;
}

#[tokio::test]
async fn state_is_by_key_alone_and_a_changed_limit_keeps_it() {
    let (_server, mut client) = started().await;
    client.expect("CL.THROTTLE k 9 10 36000 5", &five([0, 10, 5, -1, 18_000])).await;
    // Half full stays half full: twice as large, of another rate and period, under another command.
    client.expect("CL.THROTTLE k 19 20 72000 0", &five([0, 20, 10, -1, 36_000])).await;
    client.expect("GCRA k 9 10 36000 TOKENS 1", &five([0, 10, 4, -1, 21_600])).await;
    client.expect("DEL k \"\"", "-ERR key is empty: say whose limit it is\r\n").await;
    client.expect("CL.THROTTLE k 9 10 36000 0", &five([0, 10, 4, -1, 21_600])).await;
    client.expect("DEL k other", ":2\r\n").await;
    client.expect("CL.THROTTLE k 9 10 36000 0", &five([0, 10, 10, -1, 0])).await;
}

#[tokio::test]
async fn gcra_takes_a_fraction_of_a_second_and_rounds_up() {
    let (_server, mut client) = started().await;
    client.expect("GCRA k 5 10 60", &five([0, 6, 5, -1, 6])).await;
    client.expect("gcra k 5 10 60 tokens 5", &five([0, 6, 0, -1, 36])).await;
    client.expect("GCRA k 5 10 60", &five([1, 6, 0, 6, 36])).await;
    client.expect("GCRA k 5 10 60 TOKENS 7", &five([1, 6, 0, -1, 36])).await;
    client.expect("GCRA half 0 1 0.5", &five([0, 1, 0, -1, 1])).await;
    for (line, error) in [
        ("GCRA k 1 1", "-ERR wrong number of arguments for 'gcra' command\r\n"),
        ("GCRA k -1 1 1", "-ERR value is out of range, must be positive\r\n"),
        ("GCRA k x 1 1", "-ERR value is not an integer or out of range\r\n"),
        ("GCRA k 1 0 1", "-ERR value is out of range, value must between 1 and 9223372036854775807\r\n"),
        ("GCRA k 1 1 nan", "-ERR value is not a valid float\r\n"),
        ("GCRA k 1 1 -1", "-ERR period must be > 0 and < 1e12\r\n"),
        ("GCRA k 1 1 1 TOKENS", "-ERR Missing TOKENS value\r\n"),
        ("GCRA k 1 1 1 COINS 2", "-ERR syntax error\r\n"),
    ] {
        client.expect(line, error).await;
    }
}

#[tokio::test]
async fn our_own_commands_answer_by_names_in_a_fixed_order() {
    let (_server, mut client) = started().await;
    let checked = client.ask(&["TG.CHECK", "api", "ann"]).await;
    let [.., take] = checked.as_slice() else { panic!("{checked:?}") };
    let names: Vec<&str> = checked.iter().step_by(2).map(String::as_str).collect();
    let expected = "allowed limit remaining retry_after_ms reset_after_ms never rule source on_outage take";
    assert_eq!(names.join(" "), expected);
    let values = |answer: &[String]| answer.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(values(&checked), format!("1 2 1 null 1800000 0 api store null {take}"));

    assert_eq!(client.ask(&["TG.CHECK", "api", "ann", "COST", "2"]).await[1], "0");
    let never = client.ask(&["TG.CHECK", "api", "ann", "COST", "3"]).await;
    assert_eq!((never[1].as_str(), never[7].as_str(), never[11].as_str()), ("0", "null", "1"));
    let peeked = client.ask(&["TG.PEEK", "api", "ann"]).await;
    assert_eq!((peeked[1].as_str(), peeked[5].as_str(), peeked[19].as_str()), ("1", "1", "null"));
    let words = client.ask(&["TG.INSPECT", "ann"]).await.concat();
    assert!(words.starts_with("api: 2/h (token_bucket): 1 of 2 left, whole in "), "{words}");

    let refunded = client.ask(&["TG.REFUND", "api", "ann", take]).await;
    assert_eq!(
        &refunded[..6],
        ["refunded", "part", "limit", "2", "remaining", "2"],
        "some had flown back by itself"
    );
    client.ask(&["TG.CHECK", "api", "ann"]).await;
    assert_eq!(client.ask(&["TG.FORGET", "api", "ann"]).await, ["+OK"]);
    assert_eq!(client.ask(&["TG.PEEK", "api", "ann"]).await[5], "2");
    assert_eq!(client.ask(&["TG.INSPECT", "ann"]).await, ["every rule's limit is whole for this key\n"]);

    let login = ["TG.ASK", "path", "/x/../login", "address", "203.0.113.9"];
    assert_eq!(values(&client.ask(&login).await)[..22], *"1 5 4 null 60000 0 log");
    let costly = ["TG.ASK", "COST", "4", "path", "/login", "address", "203.0.113.9"];
    assert_eq!(client.ask(&costly).await[5], "0");
    assert_eq!(client.ask(&login).await[1], "0", "five were spent");
    let unlimited = client.ask(&["TG.ASK", "path", "/elsewhere"]).await;
    assert_eq!(values(&unlimited), "1 null null null null 0 null unlimited null null");
}

#[tokio::test]
async fn what_is_wrong_with_our_own_commands_is_named() {
    let (_server, mut client) = started().await;
    for (line, error) in [
        ("TG.CHECK api", "-ERR wrong number of arguments for 'tg.check' command\r\n"),
        ("TG.CHECK nope k", "-ERR unknown rule \"nope\"\r\n"),
        ("TG.CHECK api k COST", "-ERR syntax error\r\n"),
        ("TG.CHECK api k COST 0", "-ERR cost must be a whole number from 1 to 4294967295: \"0\"\r\n"),
        (
            "TG.REFUND api k yesterday",
            "-ERR take is not a take: give it as the check answered it, such as 1763194000123456.0\r\n",
        ),
        (
            "TG.REFUND api k 1.0,2.0",
            "-ERR take names 2 takes where 1 were made: give it as the check answered it\r\n",
        ),
        ("TG.ASK path", "-ERR wrong number of arguments for 'tg.ask' command\r\n"),
        (
            "TG.ASK address here",
            "-ERR attribute \"address\" is no address: write 203.0.113.9 or 2001:db8::1\r\n",
        ),
        ("TG.INSPECT", "-ERR wrong number of arguments for 'tg.inspect' command\r\n"),
        ("SET a b", "-ERR unknown command 'SET'\r\n"),
    ] {
        client.expect(line, error).await;
    }
    let long = "k".repeat(1025);
    client
        .expect(&format!("CL.THROTTLE {long} 1 2 3"), "-ERR key is 1025 bytes long: at most 1024\r\n")
        .await;
}

#[tokio::test]
async fn clients_find_what_they_look_for() {
    let (_server, mut client) = started().await;
    for (line, answer) in [
        ("PING", "+PONG\r\n"),
        ("PING hey", "$3\r\nhey\r\n"),
        ("ECHO \"a\\r\\nb\"", "$4\r\na\r\nb\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("CLIENT SETINFO LIB-NAME test", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        ("COMMAND COUNT", ":25\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        (
            "COMMAND INFO cl.throttle set",
            "*2\r\n*10\r\n$11\r\ncl.throttle\r\n:-5\r\n*1\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO three", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 FROM me", "-ERR Syntax error in HELLO option 'FROM'\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ] {
        client.expect(line, answer).await;
    }
    let hello = client.ask(&["HELLO", "3", "SETNAME", "you"]).await;
    let named = |name: &str| hello[hello.iter().position(|found| found == name).unwrap() + 1].as_str();
    assert_eq!(
        (named("server"), named("proto"), named("tollgate_version")),
        ("tollgate", "3", env!("CARGO_PKG_VERSION"))
    );
    client.expect("CLIENT GETNAME", "$3\r\nyou\r\n").await;
    // What RESP3 has words of its own for.
    client.expect("COMMAND DOCS", "%0\r\n").await;
    assert_eq!(client.ask(&["TG.PEEK", "api", "k"]).await[..2], ["allowed", "#t"]);
    let info = client.ask(&["INFO", "server"]).await.concat();
    assert!(info.contains("redis_version:7") && info.contains("tollgate_version:0"), "{info}");
    client.send("QUIT\r\nPING\r\n").await;
    assert_eq!(client.rest().await, "+OK\r\n", "nothing after that is read");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let (_server, mut client) = started().await;
    let pipeline: Vec<u8> = (0..3)
        .flat_map(|_| {
            [
                command(&["CL.THROTTLE", "k", "9", "10", "36000"]),
                b"PING\r\n".to_vec(),
                command(&["ECHO", "x"]),
            ]
            .concat()
        })
        .collect();
    let answer = |at: i64| five([0, 10, 9 - at, -1, 3600 * (at + 1)]) + "+PONG\r\n$1\r\nx\r\n";
    let mut expected: String = (0..3).map(answer).collect();
    client.send(&pipeline).await;
    assert_eq!(client.read(expected.len()).await, expected);
    for at in 1..pipeline.len() {
        client.expect("DEL k", ":1\r\n").await;
        client.send(&pipeline[..at]).await;
        tokio::task::yield_now().await;
        client.send(&pipeline[at..]).await;
        assert_eq!(client.read(expected.len()).await, expected, "cut at {at}");
    }
    // More answers than are kept, and more commands than are read at once.
    client.expect("DEL k", ":1\r\n").await;
    expected = "+PONG\r\n".repeat(50_000);
    let (mut reader, mut writer) = client.stream.into_split();
    let sending = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut writer, "PING\r\n".repeat(50_000).as_bytes()).await.unwrap();
        writer
    });
    let mut found = vec![0; expected.len()];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut found).await.unwrap();
    assert_eq!(found, expected.as_bytes());
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn commands_that_differ_in_their_key_alone_are_each_answered_and_counted() {
    let (server, mut client) = started().await;
    let (mut pipeline, mut expected) = (Vec::new(), String::new());
    // Longer than a run, with keys that come twice and thrice, and with another command among them.
    for turn in 0..3 {
        for key in 0..70 {
            let key = format!("key:{key}");
            pipeline.extend(command(&["CL.THROTTLE", &key, "1", "1", "36000"]));
            expected += &five(match turn {
                0 => [0, 2, 1, -1, 36000],
                1 => [0, 2, 0, -1, 72000],
                _ => [1, 2, 0, 36000, 72000],
            });
        }
        pipeline.extend(command(&["GCRA", &format!("gcra:{turn}"), "4", "1", "1000"]));
        expected += &five([0, 5, 4, -1, 1000]);
    }
    client.send(&pipeline).await;
    assert_eq!(client.read(expected.len()).await, expected);
    let verdicts = |outcome: &str| {
        format!(
            "tollgate_verdicts_total{{rule=\"(inline)\",outcome=\"{outcome}\",source=\"store\",on_outage=\"none\"}}"
        )
    };
    for (series, count) in [
        ("tollgate_resp_commands_total{command=\"cl.throttle\",result=\"ok\"}", 210.0),
        ("tollgate_resp_commands_total{command=\"gcra\",result=\"ok\"}", 3.0),
        (&verdicts("allowed"), 143.0),
        (&verdicts("refused"), 70.0),
        ("tollgate_buckets_total{found=\"created\"}", 73.0),
        ("tollgate_buckets_total{found=\"state\"}", 140.0),
    ] {
        assert_eq!(server.metric(series).await, Some(count), "{series}");
    }
}

#[tokio::test]
async fn what_is_no_command_is_answered_once_and_ends_the_connection() {
    let (server, _) = started().await;
    for (input, error) in [
        (&b"PING\r\n*1\r\n:5\r\nPING\r\n"[..], "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*65\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$65537\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$2147483647\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"ECHO \"x\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (&vec![b'x'; 200 * 1024], "-ERR Protocol error: too big inline request\r\n"),
    ] {
        let mut client = Resp::connect(server.resp).await;
        client.send(input).await;
        assert_eq!(client.rest().await, error);
    }
    assert_eq!(server.metric("tollgate_resp_connections_closed_total{why=\"protocol\"}").await, Some(6.0));
    let mut client = Resp::connect(server.resp).await;
    let long = "x".repeat(64 * 1024);
    assert_eq!(client.ask(&["ECHO", &long]).await, [long], "the longest word there may be");
}

#[tokio::test]
async fn commands_are_counted_by_name_and_strangers_words_are_no_labels() {
    let (server, mut client) = started().await;
    client.expect("CL.THROTTLE k 9 10 36000", &five([0, 10, 9, -1, 3600])).await;
    client
        .expect("CL.THROTTLE k 9 0 36000", "-Cell error: Store error: Zero rates are not supported\r\n")
        .await;
    client.expect("WHATEVER", "-ERR unknown command 'WHATEVER'\r\n").await;
    for (series, count) in [
        ("tollgate_resp_commands_total{command=\"cl.throttle\",result=\"ok\"}", 1.0),
        ("tollgate_resp_commands_total{command=\"cl.throttle\",result=\"error\"}", 1.0),
        ("tollgate_resp_commands_total{command=\"other\",result=\"error\"}", 1.0),
        (
            "tollgate_verdicts_total{rule=\"(inline)\",outcome=\"allowed\",source=\"store\",on_outage=\"none\"}",
            1.0,
        ),
        ("tollgate_resp_connections", 1.0),
    ] {
        assert_eq!(server.metric(series).await, Some(count), "{series}");
    }
    let text = server.admin("/metrics", "").await.text();
    assert!(!text.to_ascii_lowercase().contains("whatever"), "{text}");
}

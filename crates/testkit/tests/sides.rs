//! A cable between two namespaces: what is sent over it arrives, and when it is cut nothing does.

use std::{io, io::Write as _, net::SocketAddr, sync::mpsc, thread, time::Duration};

use testkit::{RedisClient, RedisServer, TwoSides, enter_namespace, eventually};
use tokio::{runtime, time};

/// What a connection that is lost is waited for.
const LOST_AFTER: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_cut_is_felt_on_both_sides_and_mended() {
    let network = match TwoSides::new() {
        Ok(network) => network,
        // Said and not passed over: only an administrator may do this.
        Err(refused) => {
            assert!(refused.contains("`ip "), "the refusal names the command: {refused}");
            // Not by `println!`, which a test that passes keeps to itself.
            let _ =
                writeln!(io::stderr(), "NOT TESTED: network namespaces are not permitted here: {refused}");
            return;
        }
    };
    let [(here, address), (there, _)] = network.sides();
    let server = RedisServer::builder().in_namespace(here, address).arg("protected-mode", "no").start().await;

    assert!(reaches(there, server.address()), "by the cable");
    assert!(reaches(here, server.address()), "by its own side");
    network.cut();
    assert!(!reaches(there, server.address()), "the cable is cut");
    assert!(reaches(here, server.address()), "not by the cable");
    network.mend();
    eventually("the cable carries again", || reaches(there, server.address())).await;

    let names = [here, there].map(str::to_owned);
    drop(server);
    drop(network);
    assert!(names.iter().all(|name| !std::path::Path::new("/run/netns").join(name).exists()), "left behind");
}

/// Whether a server answers a thread in a namespace.
fn reaches(namespace: &str, server: SocketAddr) -> bool {
    let (namespace, (answer, answered)) = (namespace.to_owned(), mpsc::channel());
    thread::spawn(move || {
        enter_namespace(&namespace);
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ping = async { RedisClient::connect(server).await?.command(&["PING"]).await };
        let answered = runtime.block_on(async { time::timeout(LOST_AFTER, ping).await });
        answer.send(matches!(answered, Ok(Ok(_)))).expect("it is waited for");
    });
    answered.recv().expect("the thread answers")
}

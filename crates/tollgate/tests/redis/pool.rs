//! How many connections a store opens, and who uses which.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use testkit::RedisServer;
use tollgate::core::store::Store;
use tollgate::store::redis::RedisStore;

use crate::stand::{config, take, ten};

/// Connections that are not the administrator's.
async fn connections(server: &RedisServer) -> usize {
    let list = server.command(&["CLIENT", "LIST"]).await.text();
    list.lines().filter(|line| line.contains(" user=default ")).count()
}

fn pool_of(server: &RedisServer, pool_size: usize) -> Arc<RedisStore> {
    let mut config = config(&server.url());
    config.pool_size = pool_size;
    Arc::new(RedisStore::new(config).expect("no TLS to go wrong"))
}

/// Runs `threads` threads at once, each on a runtime of its own, that ask a few times each; counts
/// connections while all are still there.
async fn connections_of(server: &RedisServer, store: &Arc<RedisStore>, threads: usize) -> usize {
    let (asked, counted) = (Arc::new(Barrier::new(threads + 1)), Arc::new(Barrier::new(threads + 1)));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (store, asked, counted) = (Arc::clone(store), Arc::clone(&asked), Arc::clone(&counted));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    for _ in 0..5 {
                        take(&store, &ten()).await;
                    }
                });
                asked.wait();
                counted.wait();
            })
        })
        .collect();
    tokio::task::block_in_place(|| asked.wait());
    let open = connections(server).await;
    tokio::task::block_in_place(|| counted.wait());
    for thread in running {
        thread.join().expect("its asks were answered");
    }
    open
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_share_a_pool_and_each_keeps_to_one_connection() {
    let server = RedisServer::start().await;
    for (pool_size, threads, open) in [(8, 1, 1), (8, 3, 3), (2, 6, 2), (1, 4, 1)] {
        // Those of the case before end with its threads, as soon as Redis notices.
        while connections(&server).await > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let store = pool_of(&server, pool_size);
        assert_eq!(connections_of(&server, &store, threads).await, open, "{threads} threads, {pool_size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pool_is_never_exceeded_and_heartbeats_have_one_more() {
    let server = RedisServer::start().await;
    let store = pool_of(&server, 2);
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { take(&store, &ten()).await })
        })
        .collect();
    for ask in asking {
        ask.await.unwrap();
    }
    let open = connections(&server).await;
    assert!((1..=2).contains(&open), "{open} connections");
    store.heartbeat().await.unwrap();
    assert_eq!(connections(&server).await, open + 1);
    store.heartbeat().await.unwrap();
    assert_eq!(connections(&server).await, open + 1);
    let stats = store.stats();
    assert_eq!((stats.connections_open, stats.dials), (open as u64 + 1, open as u64 + 1));
}

#[tokio::test]
async fn warming_dials_before_the_first_ask() {
    let server = RedisServer::start().await;
    let store = pool_of(&server, 4);
    store.warm();
    testkit::eventually("it is dialled", || store.stats().connections_open == 1).await;
    take(&store, &ten()).await;
    assert_eq!(store.stats().dials, 1);
}

/// A store outlives the runtimes it was used on: a connection ends with the runtime that served it.
#[test]
fn a_runtime_that_ended_takes_only_its_connections_along() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, server) = {
        let first = runtime();
        let server = first.block_on(RedisServer::start());
        (first, server)
    };
    let store = pool_of(&server, 2);
    let second = runtime();
    assert_eq!(second.block_on(take(&store, &ten())).remaining, 9);
    drop(second);
    assert_eq!(first.block_on(take(&store, &ten())).remaining, 8, "dialled again");
}

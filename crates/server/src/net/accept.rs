//! Accepts connections, as many as there may be, and lets them finish at the end.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bind::Listener;
use super::peer::Peer;
use super::serve::Bounds;
use super::stream::Socket;
use crate::shutdown::LifeView;

/// How long to wait after the system refused us a connection (out of file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves each connection on its own, until the life closes and they have finished, or took too long to.
pub(crate) async fn accept<F>(
    listener: Listener,
    mut life: LifeView,
    bounds: Bounds,
    turn_away: impl Fn(Socket),
    serve: impl Fn(Socket, Peer, LifeView) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = life.closing() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) if connections.len() < bounds.connections_max => {
                    connections.spawn(serve(socket, peer, life.clone()));
                }
                Ok((socket, _)) => turn_away(socket),
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(bounds.drain_timeout, finish).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off: they did not finish in time");
    }
}

//! Waiting for states, never for times.

use std::time::Duration;

/// Longer than anything takes on a busy machine; only a failure waits this long.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Pauses between two checks: a longer wait checks less often, because many tests share one API server.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// Checks repeatedly until there is an answer. `what` completes "waited in vain for".
pub async fn until<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, ask).await
}

/// The same with a limit that is part of the test.
pub async fn until_within<T>(limit: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause = LAST_PAUSE.min(pause.mul_f64(1.2));
        }
    };
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| panic!("waited {limit:?} in vain for {what}"))
}

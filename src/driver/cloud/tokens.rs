//! Tokens that a cloud issues for some time, such as those of OAuth 2.0 and of Keystone.

use std::time::Duration;

use async_trait::async_trait;
use tokio::{sync::Mutex, time::Instant};

use super::failure::CloudFailure;

/// Tokens are fetched again so long before they expire. One that lives less than twice as long is fetched again at half of its life.
const AHEAD: Duration = Duration::from_secs(300);
/// The pause after a token that is due could not be fetched. The earlier token serves meanwhile, until it expires.
const AGAIN: Duration = Duration::from_secs(30);

/// A token, with all that was issued with it.
#[derive(Clone, Debug)]
pub struct IssuedToken<V> {
    /// The token.
    pub value: V,
    /// The end of its life.
    pub expires: Instant,
}

/// A server that issues tokens.
#[async_trait]
pub trait TokenSource: Send + Sync + 'static {
    /// A token, with all that is issued with it.
    type Value: Clone + Send + Sync;

    /// Fetches a token.
    ///
    /// # Errors
    /// The server did not issue one.
    async fn fetch(&self) -> Result<IssuedToken<Self::Value>, CloudFailure>;
}

/// The token of one account.
pub struct TokenCache<S: TokenSource> {
    source: S,
    /// The token that was fetched last. The task that fetches holds the lock, so that others wait for the same token.
    fetched: Mutex<Option<CachedToken<S::Value>>>,
}

struct CachedToken<V> {
    value: V,
    /// When the next one is due.
    due: Instant,
    expires: Instant,
}

impl<S: TokenSource> TokenCache<S> {
    /// An empty cache.
    pub fn new(source: S) -> Self {
        Self { source, fetched: Mutex::default() }
    }

    /// The server that issues the tokens.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// A token that does not expire soon.
    ///
    /// # Errors
    /// [`TokenSource::fetch`] failed.
    pub async fn get(&self) -> Result<S::Value, CloudFailure> {
        self.used_until(|fetched| fetched.due).await
    }

    /// A token that did not expire yet: for an attempt of a call that began with [`get`](Self::get).
    ///
    /// # Errors
    /// [`TokenSource::fetch`] failed.
    pub async fn get_unexpired(&self) -> Result<S::Value, CloudFailure> {
        self.used_until(|fetched| fetched.expires).await
    }

    async fn used_until(
        &self,
        end: impl Fn(&CachedToken<S::Value>) -> Instant + Send,
    ) -> Result<S::Value, CloudFailure> {
        let mut fetched = self.fetched.lock().await;
        let now = Instant::now();
        if let Some(token) = fetched.as_ref().filter(|token| end(token) > now) {
            return Ok(token.value.clone());
        }
        let IssuedToken { value, expires } = match self.source.fetch().await {
            Ok(issued) => issued,
            Err(failure) => {
                let now = Instant::now();
                let at_hand = fetched.as_mut().filter(|token| token.expires > now && failure.code().is_transient());
                let Some(token) = at_hand else { return Err(failure) };
                token.due = token.expires.min(now + AGAIN);
                return Ok(token.value.clone());
            }
        };
        let life = expires.saturating_duration_since(now);
        let due = now + life.saturating_sub(AHEAD).max(life / 2);
        Ok(fetched.insert(CachedToken { value, due, expires }).value.clone())
    }

    /// Drops the token, because the cloud refused it.
    pub async fn forget(&self) {
        self.forget_if(|_| true).await;
    }

    /// Drops the token if it is the refused one: a refusal may come after another call fetched the next token.
    pub async fn forget_if(&self, is_refused: impl FnOnce(&S::Value) -> bool + Send) {
        self.fetched.lock().await.take_if(|token| is_refused(&token.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use futures::future::join_all;
    use rstest::rstest;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use tokio::time::{advance, sleep};

    /// Issues a token and breaks.
    struct Breaking(AtomicU32, CloudFailure);

    #[async_trait]
    impl TokenSource for Breaking {
        type Value = u32;

        async fn fetch(&self) -> Result<IssuedToken<u32>, CloudFailure> {
            match self.0.fetch_add(1, Relaxed) {
                0 => Ok(IssuedToken { value: 0, expires: Instant::now() + Duration::from_secs(3600) }),
                _ => Err(self.1.clone()),
            }
        }
    }

    fn refused() -> CloudFailure {
        CloudFailure::Named { code: Code::Unauthenticated, name: "invalid_client".to_owned(), message: String::new() }
    }

    #[rstest]
    #[case::no_answer(CloudFailure::NoAnswer, true)]
    #[case::server_error(CloudFailure::Status(503), true)]
    #[case::wrong_credentials(refused(), false)]
    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_due_serves_while_no_other_can_be_had(#[case] failure: CloudFailure, #[case] serves: bool) {
        let cache = TokenCache::new(Breaking(AtomicU32::default(), failure));
        assert_eq!(cache.get().await, Ok(0));
        advance(Duration::from_secs(3400)).await;
        for _ in 0..5 {
            assert_eq!(cache.get().await.is_ok(), serves);
        }
        assert_eq!(cache.source().0.load(Relaxed), if serves { 2 } else { 6 }, "it is not fetched for each call");
        advance(Duration::from_secs(200)).await;
        assert!(cache.get().await.is_err(), "it has expired");
    }

    /// Issues numbers that live for some time. The first request fails if `fails` is true.
    struct Numbers {
        life: Duration,
        fails: bool,
        issued: AtomicU32,
    }

    #[async_trait]
    impl TokenSource for Numbers {
        type Value = u32;

        async fn fetch(&self) -> Result<IssuedToken<u32>, CloudFailure> {
            sleep(Duration::from_millis(10)).await;
            let value = self.issued.fetch_add(1, Relaxed);
            if self.fails && value == 0 {
                return Err(CloudFailure::NoAnswer);
            }
            Ok(IssuedToken { value, expires: Instant::now() + self.life })
        }
    }

    fn cache(life: u64, fails: bool) -> TokenCache<Numbers> {
        TokenCache::new(Numbers { life: Duration::from_secs(life), fails, issued: AtomicU32::default() })
    }

    #[rstest]
    #[case::long(3600, 3299, 3301)]
    #[case::short(60, 29, 31)]
    #[tokio::test(start_paused = true)]
    async fn a_token_is_fetched_again_before_it_expires(#[case] life: u64, #[case] still: u64, #[case] no_more: u64) {
        let cache = cache(life, false);
        assert_eq!(cache.get().await, Ok(0));
        advance(Duration::from_secs(still)).await;
        assert_eq!(cache.get().await, Ok(0));
        advance(Duration::from_secs(no_more - still)).await;
        assert_eq!(cache.get().await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_share_a_token() {
        let cache = cache(3600, false);
        assert_eq!(join_all((0..5).map(|_| cache.get())).await, [const { Ok(0) }; 5]);
        cache.forget().await;
        assert_eq!(cache.get().await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_gets_a_token_that_is_due_and_not_expired() {
        let cache = cache(3600, false);
        assert_eq!(cache.get_unexpired().await, Ok(0));
        advance(Duration::from_secs(3598)).await;
        assert_eq!(cache.get_unexpired().await, Ok(0));
        assert_eq!(cache.get().await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_refusal_of_another_token_forgets_nothing() {
        let cache = cache(3600, false);
        assert_eq!(cache.get().await, Ok(0));
        cache.forget_if(|token| *token == 7).await;
        assert_eq!(cache.get().await, Ok(0));
        cache.forget_if(|token| *token == 0).await;
        assert_eq!(cache.get().await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let cache = cache(3600, true);
        assert_eq!(cache.get().await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(cache.get().await, Ok(1));
    }
}

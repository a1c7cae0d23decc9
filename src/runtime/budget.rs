//! Requests per second to one API server, shared by the cells of a process. Each cell gets its turn, so that a busy one does
//! not delay the others.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Uri};
use parking_lot::Mutex;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{
    fair::FairBucket,
    kubeconfig::address,
    limiter::{RequestRate, is_watch},
};

/// The purpose of a budget. Renewals of Leases must not wait for other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetPurpose {
    Requests,
    Leases,
}

/// The budgets of all API servers that are in use. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestBudgets(pub Arc<Mutex<ServerBuckets>>);

/// The bucket of each server and purpose, while a client uses it.
type ServerBuckets = HashMap<(String, BudgetPurpose), Weak<FairBucket>>;

impl RequestBudgets {
    /// The share of a cell in the budget of a server, which has this rate if it is new.
    pub fn share(&self, server: &Uri, purpose: BudgetPurpose, rate: RequestRate, cell: &str) -> BudgetLayer {
        let mut budgets = self.0.lock();
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let budget = budgets.entry((address(server), purpose)).or_default();
        let bucket = budget.upgrade().unwrap_or_else(|| {
            let made = FairBucket::new(rate);
            *budget = Arc::downgrade(&made);
            made
        });
        BudgetLayer { bucket, cell: cell.into() }
    }
}

/// The share of one cell in the budget of a server: a layer of its clients. Watches are exempt.
#[derive(Clone, Debug)]
pub struct BudgetLayer {
    bucket: Arc<FairBucket>,
    cell: Arc<str>,
}

impl<S> Layer<S> for BudgetLayer {
    type Service = BudgetService<S>;

    fn layer(&self, inner: S) -> BudgetService<S> {
        BudgetService { inner, share: self.clone() }
    }
}

/// See [`Share`].
#[derive(Clone, Debug)]
pub struct BudgetService<S> {
    inner: S,
    share: BudgetLayer,
}

impl<S, B> Service<Request<B>> for BudgetService<S>
where
    S: Service<Request<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, BudgetLayer { bucket, cell }) = (self.inner.clone(), self.share.clone());
        async move {
            if !is_watch(request.uri()) {
                bucket.take(&cell).await;
            }
            inner.oneshot(request).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;

    const RATE: RequestRate = RequestRate { qps: 1.0, burst: 1 };

    #[tokio::test(start_paused = true)]
    async fn cells_of_one_server_share_its_rate_in_turns_and_other_servers_and_leases_have_their_own() {
        let (budgets, began) = (RequestBudgets::default(), Instant::now());
        let inner = || service_fn(|_: Request<()>| async { Ok::<_, BoxError>(()) });
        let client = |server: &'static str, purpose, cell| {
            budgets.share(&Uri::from_static(server), purpose, RATE, cell).layer(inner())
        };
        let call = async |client: &BudgetService<_>, uri: &str| {
            client.clone().oneshot(Request::get(uri).body(()).unwrap()).await.unwrap();
            began.elapsed().as_secs()
        };
        let [busy, quiet] = ["busy", "quiet"].map(|cell| client("https://seed:6443/a", BudgetPurpose::Requests, cell));
        let many = join_all((0..20).map(|_| call(&busy, "/api")));
        let (_, one) = tokio::join!(many, call(&quiet, "/api"));
        assert!(one <= 2, "{one} s");
        assert_eq!(began.elapsed().as_secs(), 20);
        for other in [
            client("https://seed:6443", BudgetPurpose::Leases, "busy"),
            client("https://shoot:6443", BudgetPurpose::Requests, "busy"),
        ] {
            assert_eq!(call(&other, "/api").await, 20);
        }
        assert_eq!(call(&busy, "/api?watch=true").await, 20);
        drop((busy, quiet));
        // Until the tasks that hand out tokens notice that no request waits.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        client("https://seed:6443", BudgetPurpose::Leases, "busy");
        assert_eq!(budgets.0.lock().len(), 1, "a server without clients has no budget");
    }
}

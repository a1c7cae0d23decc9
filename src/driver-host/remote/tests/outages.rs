//! Drivers that hang, die and come back.

use std::time::Instant;

use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;

use super::{between::Proxy, *};
use mcm_driver::{DriverObserver, DriverOperation};

const FOR_EVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_missing_driver_is_unavailable_until_it_starts() {
    let (_folder, path) = socket();
    let driver = client_of("odd", &path);
    let error = driver.status(&request()).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "never that there is no VM");
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    until_ok(async || driver.status(&request()).await).await;
}

/// The observed states of a driver, in order.
#[derive(Default)]
struct Reached(Mutex<Vec<bool>>);

impl DriverObserver for Reached {
    fn observed(&self, _: &str, _: DriverOperation, _: Duration, _: Result<(), Code>) {}

    fn reached(&self, _: &str, is_up: bool) {
        self.0.lock().push(is_up);
    }
}

impl Reached {
    async fn until(&self, expected: &[bool]) {
        let seen = || Some(self.0.lock().clone()).filter(|seen| seen == expected);
        until_ok(async || seen().ok_or_else(|| DriverError::new(Code::Unavailable, "not yet"))).await;
    }
}

#[tokio::test]
async fn whether_a_driver_can_be_called_is_observed() {
    let (_folder, path) = socket();
    let reached = Arc::new(Reached::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Reached>::clone(&reached);
    let endpoint = DriverEndpoint::new("odd", DriverAddress::Unix(path.clone()));
    let _driver = RemoteDriver::open_with(&endpoint, TextTreatment::Cleaned, &observer, TIMING);
    reached.until(&[false]).await;
    let server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    reached.until(&[false, true]).await;
    server.stop().await;
    reached.until(&[false, true, false]).await;
}

/// The process is stopped: the kernel accepts connections, and no call is answered.
#[tokio::test]
async fn a_hanging_process_delays_no_call_and_is_used_once_it_responds() {
    let (_folder, path) = socket();
    let hangs = UnixListener::bind(&path).unwrap();
    let driver = client_of("odd", &path);
    let start = Instant::now();
    for _ in 0..3 {
        let error = driver.create(&request()).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(error.message.contains("did not respond within"), "{error}");
    }
    assert!(start.elapsed() < SOON);
    drop(hangs);
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    until_ok(async || driver.create(&request()).await).await;
}

#[tokio::test]
async fn a_call_in_flight_ends_when_the_driver_dies_and_its_outcome_is_unknown() {
    let (_folder, path) = socket();
    let odd = Arc::new(Odd::taking(FOR_EVER));
    let server = Server::on_socket(&path, Arc::clone(&odd) as _).await;
    let driver = Arc::new(client_of("odd", &path));
    let caller = Arc::clone(&driver);
    let call = tokio::spawn(async move { caller.create(&request()).await });
    until_ok(async || match *odd.calls.lock() {
        0 => Err(DriverError::new(Code::Unavailable, "not called yet")),
        _ => Ok(()),
    })
    .await;
    drop(server);
    let error = tokio::time::timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert!(error.code.is_transient(), "{error}");

    *odd.latency.lock() = Duration::ZERO;
    let _server = Server::on_socket(&path, odd).await;
    until_ok(async || driver.create(&request()).await).await;
}

#[tokio::test]
async fn a_driver_that_is_slow_delays_no_other() {
    let ((_one, slow_path), (_two, quick_path)) = (socket(), socket());
    let slow_driver = Arc::new(Odd::taking(FOR_EVER));
    let _slow = Server::on_socket(&slow_path, Arc::clone(&slow_driver) as _).await;
    let _quick = Server::on_socket(&quick_path, Arc::new(Odd::new())).await;
    let (slow, quick) = (Arc::new(client_of("odd", &slow_path)), client_of("odd", &quick_path));
    let calls = (0..50).map(|_| {
        let slow = Arc::clone(&slow);
        AbortOnDropHandle::new(tokio::spawn(async move { slow.create(&request()).await }))
    });
    let calls: Vec<_> = calls.collect();
    until_ok(async || match *slow_driver.calls.lock() {
        50 => Ok(()),
        _ => Err(DriverError::new(Code::Unavailable, "not called yet")),
    })
    .await;
    let answered = tokio::time::timeout(SOON, quick.create(&request())).await;
    answered.unwrap().unwrap();
    assert!(calls.iter().all(|call| !call.is_finished()), "a driver that is healthy may take its time");
}

#[tokio::test]
async fn a_server_that_is_stopped_lets_calls_end() {
    let (_folder, path) = socket();
    let odd = Arc::new(Odd::taking(Duration::from_millis(300)));
    let server = Server::on_socket(&path, Arc::clone(&odd) as _).await;
    let driver = Arc::new(client_of("odd", &path));
    let caller = Arc::clone(&driver);
    let call = tokio::spawn(async move { caller.create(&request()).await });
    until_ok(async || match *odd.calls.lock() {
        0 => Err(DriverError::new(Code::Unavailable, "not called yet")),
        _ => Ok(()),
    })
    .await;
    tokio::time::timeout(SOON, server.stop()).await.unwrap();
    call.await.unwrap().unwrap();
}

/// A driver behind a proxy, after its first call. The keeper's connection came first, that for calls is the newest.
async fn behind_a_proxy(odd: &Arc<Odd>) -> (TempDir, Server, Proxy, Arc<RemoteDriver>) {
    let (folder, path) = socket();
    let server = Server::on_socket(&path, Arc::clone(odd) as _).await;
    let front = folder.path().join("front.sock");
    let proxy = Proxy::start(&front, &path);
    let driver = Arc::new(client_of("odd", &front));
    until_ok(async || driver.status(&request()).await).await;
    assert_eq!(proxy.count(), 2);
    (folder, server, proxy, driver)
}

/// A call that reached the driver, and does not end.
async fn begun(odd: &Odd, driver: &Arc<RemoteDriver>) -> tokio::task::JoinHandle<Answer<Vm>> {
    *odd.latency.lock() = FOR_EVER;
    let (before, caller) = (*odd.calls.lock(), Arc::clone(driver));
    let call = tokio::spawn(async move { caller.create(&request()).await });
    until_ok(async || match *odd.calls.lock() {
        now if now > before => Ok(()),
        _ => Err(DriverError::new(Code::Unavailable, "not called yet")),
    })
    .await;
    *odd.latency.lock() = Duration::ZERO;
    call
}

#[tokio::test]
async fn a_call_whose_connection_is_swallowed_ends_and_the_next_gets_another_connection() {
    let odd = Arc::new(Odd::new());
    let (_folder, _server, proxy, driver) = behind_a_proxy(&odd).await;
    let call = begun(&odd, &driver).await;
    proxy.newest().swallow();
    let error = tokio::time::timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    driver.status(&request()).await.unwrap();
    assert_eq!(proxy.count(), 3, "the keeper's connection lives");
}

#[tokio::test]
async fn a_connection_that_is_swallowed_between_two_calls_delays_the_next_one_for_a_moment_only() {
    let odd = Arc::new(Odd::new());
    let (_folder, _server, proxy, driver) = behind_a_proxy(&odd).await;
    proxy.newest().swallow();
    tokio::time::timeout(SOON, until_ok(async || driver.status(&request()).await)).await.unwrap();
    assert_eq!(proxy.count(), 3);
}

#[tokio::test]
async fn a_driver_that_permits_no_pings_gets_none_any_more() {
    let odd = Arc::new(Odd::new());
    let (_folder, _server, proxy, driver) = behind_a_proxy(&odd).await;
    let call = begun(&odd, &driver).await;
    let first = proxy.newest();
    until_ok(async || match first.pings() {
        0 => Err(DriverError::new(Code::Unavailable, "no ping yet")),
        _ => Ok(()),
    })
    .await;
    first.refuse_pings().await;
    let error = tokio::time::timeout(SOON, call).await.unwrap().unwrap().unwrap_err();
    assert!(error.code.is_transient(), "{error}");
    // Longer than several pings would take.
    *odd.latency.lock() = TIMING.pings.every * 6;
    driver.create(&request()).await.unwrap();
    assert_eq!((proxy.count(), proxy.newest().pings()), (3, 0));
}

#[tokio::test]
async fn a_driver_that_breaks_every_call_is_looked_at_with_pauses() {
    let pause = Duration::from_millis(200);
    let timing = KeeperTiming { period: FOR_EVER, pauses: (pause, pause), ..TIMING };
    let (_folder, path) = socket();
    let odd = Arc::new(Odd::new());
    let _server = Server::on_socket(&path, Arc::clone(&odd) as _).await;
    let endpoint = DriverEndpoint::new("odd", DriverAddress::Unix(path));
    let driver =
        RemoteDriver::open_with(&endpoint, TextTreatment::Cleaned, &DriverGuards::unobserved().observer, timing);
    driver.reached().await.unwrap();
    let mut too_large = request();
    too_large.secret.0.insert("large".to_owned(), vec![0; 9 << 20]);
    let start = Instant::now();
    for _ in 0..3 {
        let looks = *odd.looks.lock();
        driver.create(&too_large).await.unwrap_err();
        until_ok(async || match *odd.looks.lock() {
            now if now > looks => Ok(()),
            _ => Err(DriverError::new(Code::Unavailable, "not looked at yet")),
        })
        .await;
    }
    assert!(start.elapsed() >= pause * 3, "{:?}", start.elapsed());
}

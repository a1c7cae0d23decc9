//! Authentication of clients and of the server.

use std::fs;

use mcm_driver::testing::TestCa;

use super::{certificates::Files, *};

async fn server(tls: TlsFiles) -> Server {
    let options = ListenOptions {
        listen: ListenAddress::Tcp("127.0.0.1:0".to_owned()),
        tls,
        is_insecure: false,
        has_group_access: false,
    };
    Server::start(options, Arc::new(Odd::new())).await.unwrap()
}

fn client(server: &Server, tls: TlsFiles) -> RemoteDriver {
    let endpoint = DriverEndpoint { tls, ..DriverEndpoint::new("odd", server.address.clone()) };
    open(&endpoint)
}

#[tokio::test]
async fn both_sides_with_certificates_of_the_right_ca_talk() {
    let ca = TestCa::new();
    let files = Files::new(&ca, &ca);
    let server = server(files.all()).await;
    assert!(server.address.to_string().starts_with("https://"));
    client(&server, files.all()).status(&request()).await.unwrap();
    let named = DriverEndpoint {
        tls: files.all(),
        server_name: Some("localhost".to_owned()),
        ..DriverEndpoint::new("odd", server.address.clone())
    };
    open(&named).status(&request()).await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_or_with_one_of_another_ca_is_refused() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let (files, foreign) = (Files::new(&ca, &ca), Files::new(&other, &ca));
    let options = ListenOptions {
        listen: ListenAddress::Tcp("127.0.0.1:0".to_owned()),
        tls: files.all(),
        is_insecure: false,
        has_group_access: false,
    };
    let odd = Arc::new(Odd::new());
    let server = Server::start(options, Arc::clone(&odd) as _).await.unwrap();
    for tls in [TlsFiles { cert: None, key: None, ..files.all() }, foreign.all()] {
        let error = client(&server, tls).status(&request()).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{error}");
    }
    assert_eq!(*odd.calls.lock(), 0, "the driver never hears of them");
    client(&server, files.all()).status(&request()).await.unwrap();
    assert_eq!(*odd.calls.lock(), 1);
}

#[tokio::test]
async fn a_server_of_another_ca_or_with_another_name_is_not_believed() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let (files, foreign) = (Files::new(&ca, &ca), Files::new(&ca, &other));
    let server = server(files.all()).await;
    let error = client(&server, foreign.all()).status(&request()).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("invalid peer certificate"), "{error}");

    let named = DriverEndpoint {
        tls: files.all(),
        server_name: Some("other.example".to_owned()),
        ..DriverEndpoint::new("odd", server.address.clone())
    };
    let error = open(&named).status(&request()).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn plain_text_is_not_understood_by_a_server_with_tls() {
    let ca = TestCa::new();
    let server = server(Files::new(&ca, &ca).all()).await;
    let DriverAddress::Tcp { host, port, .. } = server.address.clone() else { panic!("{}", server.address) };
    let driver = super::client("odd", DriverAddress::Tcp { host, port, is_tls: false });
    assert!(driver.status(&request()).await.unwrap_err().code.is_transient());
}

#[tokio::test]
async fn certificates_are_replaced_without_a_restart() {
    let (old, new) = (TestCa::new(), TestCa::new());
    let (of_server, of_client) = (Files::new(&old, &old), Files::new(&old, &old));
    let server = server(of_server.all()).await;
    let driver = client(&server, of_client.all());
    driver.status(&request()).await.unwrap();

    // New connections of the server use the new certificate, and the client takes the new one for its next connection.
    of_server.replace(&new, &new);
    let error = client(&server, of_client.all()).status(&request()).await.unwrap_err();
    assert!(error.code.is_transient(), "{error}");
    of_client.replace(&new, &new);
    driver.reached().await.ok();
    until_ok(async || driver.status(&request()).await).await;
    client(&server, of_client.all()).status(&request()).await.unwrap();
}

#[tokio::test]
async fn files_that_are_being_written_change_nothing() {
    let ca = TestCa::new();
    let (of_server, of_client) = (Files::new(&ca, &ca), Files::new(&ca, &ca));
    let server = server(of_server.all()).await;
    fs::write(of_server.path("cert"), "half of a c").unwrap();
    let driver = client(&server, of_client.all());
    driver.status(&request()).await.unwrap();
    fs::write(of_client.path("key"), "").unwrap();
    driver.status(&request()).await.unwrap();
}

#[tokio::test]
async fn an_error_of_a_key_does_not_show_it() {
    let ca = TestCa::new();
    let files = Files::new(&ca, &ca);
    fs::write(files.path("key"), "hunter2-hunter2").unwrap();
    let options = ListenOptions {
        listen: ListenAddress::Tcp("127.0.0.1:0".to_owned()),
        tls: files.all(),
        is_insecure: false,
        has_group_access: false,
    };
    let refused = Server::start(options, Arc::new(Odd::new())).await.err().unwrap();
    let text = format!("{:#}", anyhow::Error::from(refused));
    assert!(text.contains("has no key in PEM form") && !text.contains("hunter2"), "{text}");
}

use super::*;

#[test]
fn what_passes_is_retried_and_only_what_may_have_been_carried_out_is_in_doubt() {
    let rows = [
        (ErrorCode::ConnectionLoss, true, true),
        (ErrorCode::OperationTimeout, true, true),
        (ErrorCode::RequestTimeout, true, true),
        (ErrorCode::SessionMoved, true, true),
        (ErrorCode::SessionExpired, true, true),
        (ErrorCode::ThrottledOp, true, false),
        (ErrorCode::NoAuth, false, false),
        (ErrorCode::NoNode, false, false),
        (ErrorCode::Unimplemented, false, false),
        (ErrorCode::Other(-4711), false, false),
    ];
    for (code, passes, is_in_doubt) in rows {
        let error = Error::Server { code, operation: "delete", path: "/a".into() };
        assert_eq!((error.is_retryable(), error.is_in_doubt()), (passes, is_in_doubt), "{code:?}");
    }
    assert!(Error::ClientClosed.is_in_doubt() && !Error::ClientClosed.is_retryable());
}

#[test]
fn a_lost_connection_says_why_and_what_became_of_the_call() {
    let refused = || Some(Arc::new(io::Error::other("zk1 (10.0.0.1:2181): connection refused")));
    let loss = |operation, maybe_done, cause| Error::ConnectionLoss { operation, path: "/x".into(), maybe_done, cause };
    let text =
        "acquire /x: no connection to the servers (zk1 (10.0.0.1:2181): connection refused); the lock was not acquired";
    assert_eq!(loss("acquire", false, refused()).to_string(), text);
    assert_eq!(
        loss("create", true, None).to_string(),
        "create /x: the connection was lost before the answer came; whether it was carried out is unknown"
    );
    assert!(loss("get_data", false, refused()).to_string().ends_with("nothing was sent"));
    assert_eq!(format!("{:?}", loss("acquire", false, refused())), format!("ConnectionLoss: {text}"));
}

#[test]
fn debug_reads_as_display_does_with_every_cause() {
    let source = Arc::new(io::Error::other("no such file"));
    let io = Error::Io { what: "cannot read ca.pem".into(), source };
    assert_eq!(format!("{io:?}"), "Io: cannot read ca.pem; caused by: no such file");
    let refused = Error::Server { code: ErrorCode::NoAuth, operation: "delete", path: "/a".into() };
    assert_eq!(format!("{refused:?}"), format!("NoAuth: {refused}"));
    let several = Error::Several { first: Box::new(io), others: vec![Error::ClientClosed] };
    assert!(format!("{several:?}").ends_with("caused by: cannot read ca.pem; caused by: no such file"));
}

#[test]
fn one_contender_is_not_several() {
    let busy = |ahead| Error::Busy { path: "/l".into(), ahead }.to_string();
    assert_eq!(busy(1), "1 contender is in front at /l, more than the acquire allows");
    assert_eq!(busy(2), "2 contenders are in front at /l, more than the acquire allows");
    let taken = |ahead| Error::StillTaken { path: "/l".into(), ahead }.to_string();
    assert_eq!(taken(Some(1)), "the time was up before /l was free: 1 contender is in front");
    assert_eq!(taken(None), "the time was up before /l was free");
}

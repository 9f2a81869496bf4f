"""The crash test: clients under load, something killed with SIGKILL, and a checker that compares four witnesses.

    clients.py    what an application does with pg_idem, and five ways of getting it wrong
    provider.py   the outside world: effects that no crash of ours takes back
    journal.py    what each client was told, on disk before its next call
    shared.py     a page of memory between the clients and whoever kills them
    checker.py    journals, provider, business rows and ledger must agree
    run.py        the rounds:  python tests/crash/run.py --rounds 500
"""

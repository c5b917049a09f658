enum Keys {
    /// An RSA key that was made for these tests with `openssl genrsa 2048`.
    static let rsa = """
        -----BEGIN PRIVATE KEY-----
        MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQDAHAiLQxGhm1OT
        LfMMN9zzr5ODE9WGu0OI9/BrDsyJHPUgmnOxZAM22xIF5P51IY8dptaoQVCeHHos
        J003/DJ06+6qm4UiNMOCFzCr2eqC7Bj/TgKd86sfQxjSV51SJQZYtv/ygs9Tv1bn
        jHsGIsVVjBbfrTW+bxYthdCqOLXneRgESjcVxt6/c6G6m6yylf4QjpNeJMO7x1Tp
        8xFgNFVV2edstJOIbMrWXL/dVNalpm4rZb8EqCdIYTuGa3Wd2nrL8VV2KdjHH/KA
        S0+EHhvhuB4h516rluFkae7medaqK1uvPnHDi0bvBBNFzEGEGhjMFLvEX0wxg1uA
        B+kbYncFAgMBAAECggEABR15+MNLZ+Mr4YJas1uVbYOiSN4xVEoOLUp0w1T8izYT
        LNAP/owsLby9iRykzdeb6O01T/uVOvCFLEHLo476hPR3QWGstNF01zTo3dqKjPve
        WoXoOe5wAwAVXBxrGvHTbm9I91sWTCOPG9E4wVwRpwp43XHOOYjZrVKf0Lh713Lt
        KUPeEFq9wXI4ePb1lXKKae0OaS3NKXKEV3dLnJ2caOSBEeIqrt6lBb/Sy68WnjrK
        LdfG80Gq/nK1qh3GaJOZJMoKai6Xk1edV2QvsGhMcXpBRX+M5XBfTLAnoRJui06t
        EqN/cBAKtVRrk+ReMrqnUacK9q5PfiZWECwIf8JgQQKBgQDkLANoJr29Y9PbQZfT
        +ufFv1bbd1IjgfOUVqu4tupyzuAGCYk1BsnejJV9HQYXxZqKQBCK5GuvZfDh8q2+
        Os4kx1tSmrHQnXQpNCx/SeNLt+Uh7qFjKRyweCKPycCK9ouNXg72zOVgeetda4JQ
        MoqdbuK4u4UQj1LXeVpGhUewdQKBgQDXihQlmo/vmPNDJQlXQ55lbxOUXVRDU0EU
        DYl/sqUhruR3jmmiuAQOtL+y5+9X13pMkuBPaHiUnyUS5BIkMLo46dvQEJM1Nfdi
        v/CW7OsHEFd/GOSDNpdsee3Vw18g5vBKh60MaZgkwKFz77c5e6+/+h3SqZnN1K5b
        dgNb57DaUQKBgQDOXCAYqjEggJCy0/gE9/92kT507s2S34z0tA5K2OPhQcjKrQUy
        uBkK9gqdRQqlpUnHj3lmpH/f+kqJj3ojefvGt6aYZuA61KyiN1WnKaQwbvkEX1YG
        4L/Zuk1Hzigdhi1ghZjzDQzG3H1J2FnbPlqvWAIlITOPbpB14IMNFK1poQKBgQDH
        iuSl/5bbya0Eb4hbSpWc8J2e0FyPS8dHClVObJQmP+Txrl2rsFLJTprexYy2tR1b
        QOr7eQuRBFjtSUpmSNpOkGrZEE9IhuK1gF77SvE3g/CNEP2VYHgFjEgci5hJPKQf
        S8ZwZF3fQJr4W2g0hoap46OygSOMBCc7M2Fet3vqUQKBgBXoAsM3CVl7jsj/G/HI
        1qZ331Uzj9xBPTmNSsI2E4jAVrtV8edYpKioIJTvzqtbQtLhJ00RyDgiy2x9MLGN
        HTbHTlvnxryIUhQttzVgmGV8rI6tXb4txxfcw5f2xFFddiCO0RmhsfLk+NIwoVZl
        tK+zRi2E+0vesJioBNVA/xro
        -----END PRIVATE KEY-----
        """
}

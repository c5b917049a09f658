// Tests a provider in Go against a sandbox that runs already, for example as a service of the CI (github.yml, gitlab.yml).
// PUSHCHAT_SANDBOX is the address of its control API.
package push

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

func control() string {
	if address := os.Getenv("PUSHCHAT_SANDBOX"); address != "" {
		return address
	}
	return "http://localhost:2198"
}

// call makes a call of the control API, and reads its JSON into answer.
func call(t *testing.T, method, path string, answer any) {
	t.Helper()
	request, err := http.NewRequest(method, control()+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

// push sends a push. Replace this with your provider.
func push(t *testing.T, token, payload string) int {
	t.Helper()
	var credentials struct{ Authority, Certificate, Topic string }
	call(t, "GET", "/credentials", &credentials)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(credentials.Authority))
	certificate, err := tls.X509KeyPair([]byte(credentials.Certificate), []byte(credentials.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		// The sandbox's certificate has this name, whatever the name of the service is.
		TLSClientConfig: &tls.Config{
			RootCAs: authorities, Certificates: []tls.Certificate{certificate}, ServerName: "localhost",
		},
	}}
	address, err := url.Parse(control())
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(
		"POST", "https://"+address.Hostname()+":2197/3/device/"+token, bytes.NewReader([]byte(payload)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("apns-topic", credentials.Topic)
	request.Header.Set("apns-push-type", "alert")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestPushArrives(t *testing.T) {
	var device struct{ Token string }
	call(t, "POST", "/devices", &device)
	if status := push(t, device.Token, `{"aps":{"alert":"Hello"}}`); status != 200 {
		t.Fatalf("the sandbox answered with %d", status)
	}
	var inbox struct{ Notifications []struct{ Answer string } }
	// A provider may return before its push has arrived, so this waits for it.
	call(t, "GET", "/notifications?wait=10s&token="+device.Token, &inbox)
	if len(inbox.Notifications) != 1 || inbox.Notifications[0].Answer != "accepted" {
		t.Fatalf("the inbox has %v", inbox.Notifications)
	}
}
